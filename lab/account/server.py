"""The account as a WSGI application: what is ours is answered by the model of the operation, the rest by moto.

Requests are taken one after the other: moto's services are not made for threads.
"""

from __future__ import annotations

import io
import json
import re
import threading
import types
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore import xform_name
from botocore.exceptions import UnknownServiceError
from botocore.model import OperationNotFoundError
from botocore.validate import ParamValidator
from moto import backends
from moto.core.exceptions import ServiceException
from moto.core.model import OperationModel
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import Request, determine_request_protocol
from moto.core.routing import get_service_router
from moto.core.serialize import get_serializer_class
from moto.core.utils import get_service_model
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.exceptions import NotFound
from werkzeug.wrappers import Response

from lab.account import ec2, fsx
from lab.account.eks import access, addons, clusters, nodes
from lab.account.faults import ROLE_MISSING, THROTTLED, Fault, Faults
from lab.account.place import Clock, Place, RefusedError, Values
from lab.account.saved import Saved

CONTROL = "/_account"
"""PUT sets the clock and the faults, GET tells how often each operation was called."""

_OURS: dict[str, tuple[types.ModuleType, ...]] = {
    "ec2": (ec2,),
    "eks": (clusters, nodes, addons, access),
    "fsx": (fsx,),
}
_GONE = {**clusters.GONE, **addons.GONE, **fsx.GONE}
_WHOLE = ("eks", "fsx")  # moto is not asked about these at all
_SCOPE = re.compile(r"Credential=([^/]+)/[0-9]{8}/([^/]+)/([^/]+)/aws4_request")
_READS = ("Describe", "Get", "List", "Head", "Search", "Simulate", "Validate")
_BAD_INPUT = {"eks": "InvalidParameterException", "fsx": "BadRequest", "ec2": "InvalidParameterValue"}
_ROLE_MEMBERS = ("roleArn", "nodeRole", "principalArn", "serviceAccountRoleArn", "RoleName")

Environ = dict[str, Any]


@dataclass
class Call:
    """A signed request.

    Attributes:
        environ: of WSGI; the body can still be read there.
        key: the access key that signed it.
        region: for which it is.
        service: by the name that signatures have.
        operation: by botocore's model; None if it has none for this.
        asked: the operation's parameters; empty for S3, whose bodies are left alone.
    """

    environ: Environ
    key: str
    region: str
    service: str
    operation: OperationModel | None
    asked: Values

    @property
    def action(self) -> str:
        """The operation's name; empty if there is none."""
        return str(self.operation.name) if self.operation else ""

    @property
    def name(self) -> str:
        """The name by which faults and counts know it."""
        return f"{self.service}.{self.action}"


class Server:
    """The application.

    Attributes:
        account: its 12 digits.
        clock: of all that is ours.
        faults: of all services.
    """

    def __init__(self, folder: Path, account: str):
        self.account, self.clock, self.faults = account, Clock(), Faults()
        self._saved = Saved(folder / "account.db")
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._places: dict[str, Place] = {}
        self._called: set[str] = set()
        for region, records in self._saved.load().items():
            self._place(region).records = records

    def end(self) -> None:
        """Lets requests go that hang, and writes everything."""
        self._ended.set()
        with self._lock:
            self._saved.save(self._called, {region: place.records for region, place in self._places.items()})
            self._saved.close()

    def __call__(self, environ: Environ, start: Any) -> Iterable[bytes]:
        """Answers a request."""
        signed = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
        if environ["PATH_INFO"] == CONTROL:
            response = self._control(Request(environ))
        elif signed:
            response = self._take(_parse(environ, *signed.groups()))
        else:
            with self._lock:
                response = self._ask_moto(environ)
        return response(environ, start)

    def _take(self, call: Call) -> Response:
        with self._lock:
            self._called.add(call.service)
            fault = self.faults.before(call.name)
        if fault and fault.kind == "hangs":
            self._ended.wait(fault.seconds)
        elif fault and call.operation:
            return _respond(call, call.operation, _refusal(fault, call))
        with self._lock:
            return self._answer(call)

    def _place(self, region: str) -> Place:
        if region not in self._places:
            self._places[region] = Place(self.account, region, self.clock, self.faults, _GONE)
        return self._places[region]

    def _answer(self, call: Call) -> Response:
        found = (getattr(module, xform_name(call.action), None) for module in _OURS.get(call.service, ()))
        handler = next(filter(None, found), None)
        if call.operation and handler:
            place = self._place(call.region)
            place.caller = self._caller(call.key, place.partition)
            result = self._ask(handler, place, call.operation, call.asked)
            if place.changed:
                self._saved.save(["ec2"], {call.region: place.records})
                place.changed = False
            if result is not None:
                return _respond(call, call.operation, result)
        elif call.service in _WHOLE:
            what = call.name if call.operation else f"{call.service} {call.environ['PATH_INFO']}"
            text = f"{what} is not answered by this account (lab/account/README.md)"
            refusal = RefusedError("NotImplemented", text, 501)
            return _respond(call, call.operation, refusal) if call.operation else Response(text, 404)
        response = self._ask_moto(call.environ)
        reads = call.action.startswith(_READS) if call.operation else call.environ["REQUEST_METHOD"] in ("GET", "HEAD")
        if not reads:
            self._saved.save([call.service], {})
        return response

    def _ask_moto(self, environ: Environ) -> Response:
        return Response.from_app(self._moto, environ, buffered=True)

    def _ask(self, handler: Any, place: Place, operation: OperationModel, asked: Values) -> Any:
        service = str(operation.service_model.service_name)
        if wrong := _misfit(asked, operation.input_shape):
            return RefusedError(_BAD_INPUT[service], wrong)
        try:
            result = handler(place, asked)
        except ServiceException as refusal:
            return refusal
        if result is not None and (wrong := _misfit(result, operation.output_shape)):
            raise RuntimeError(f"the answer to {service}.{operation.name} does not fit the model: {wrong}")
        return result

    def _caller(self, key: str, partition: str) -> str:
        """The ARN of who owns an access key, as an access entry of EKS names it."""
        sts = backends.get_backend("sts")[self.account][partition]
        if role := sts.get_assumed_role_from_access_key(key):
            return role.role_arn
        return sts.get_caller_identity(key, "us-east-1")[1]

    def _control(self, request: Request) -> Response:
        with self._lock:
            if request.method != "PUT":
                return Response(json.dumps({"calls": self.faults.calls}), mimetype="application/json")
            try:
                wanted = json.loads(request.data)
                _check_codes(wanted["faults"])
                self.faults.set(wanted["faults"])
                self.clock.describes, self.clock.seconds = wanted["clock"]["describes"], wanted["clock"]["seconds"]
            except ValueError as wrong:
                return Response(str(wrong), 400)
        return Response("", 204)


def _parse(environ: Environ, key: str, region: str, service: str) -> Call:
    call = Call(environ, key, region, service, None, {})
    body = b""
    if service != "s3":  # objects may come in chunks; what is asked of S3 stands in its path
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
    request = Request(environ)
    try:
        call.operation, in_path = get_service_router(service).match(request)
        if service != "s3":
            protocol = determine_request_protocol(call.operation.service_model, request.content_type)
            parts = {"method": request.method, "values": request.values, "headers": request.headers}
            parts |= {"body": body, "url_path": request.path, "url_params": in_path}
            call.asked = PROTOCOL_PARSERS[protocol](call.operation).parse(parts)
    except (UnknownServiceError, NotFound, NotImplementedError):
        pass
    if service != "s3":
        environ["wsgi.input"] = io.BytesIO(body)
    return call


def _misfit(values: Any, shape: Any) -> str:
    """What of some parameters or of an answer does not fit its shape in the model; empty if all does."""
    if shape is None:
        return ""
    report = ParamValidator().validate(values or {}, shape)
    return report.generate_report() if report.has_errors() else ""


def _check_codes(faults: Iterable[dict[str, Any]]) -> None:
    for fault in faults:
        service, _, name = fault.get("operation", "").partition(".")
        if fault.get("kind") != "refused" or "*" in service + name:
            continue
        try:
            operation: Any = get_service_model(service).operation_model(name)
        except (UnknownServiceError, OperationNotFoundError) as unknown:
            raise ValueError(str(unknown)) from unknown
        known = {str(code) for shape in operation.error_shapes for code in (shape.name, shape.error_code)}
        if known and fault.get("code") not in known:  # EC2's model names none
            raise ValueError(f"{service}.{name} has no error {fault.get('code')}; it has {', '.join(sorted(known))}")


def _refusal(fault: Fault, call: Call) -> RefusedError:
    if fault.kind == "throttled":
        return RefusedError(*THROTTLED.get(call.service, THROTTLED[""]))
    if fault.kind == "refused":
        return RefusedError(fault.code, fault.message or fault.code)
    code, text = ROLE_MISSING.get(call.name, ROLE_MISSING["iam.GetRole"])
    role = next((call.asked[member] for member in _ROLE_MEMBERS if call.asked.get(member)), "")
    return RefusedError(code, text.format(arn=role))


def _respond(call: Call, operation: OperationModel, result: Any) -> Response:
    """The answer or the refusal, in the protocol in which it was asked."""
    service = operation.service_model
    protocol = determine_request_protocol(service, call.environ.get("CONTENT_TYPE", ""))
    answer = get_serializer_class(str(service.service_name), protocol)(operation).serialize(result)
    status = getattr(result, "status", 0) or answer["status_code"]
    return Response(answer["body"], status, {**answer["headers"], "x-amzn-RequestId": str(uuid.uuid4())})
