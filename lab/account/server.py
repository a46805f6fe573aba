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
Answer = tuple[int | str, Any, list[bytes]]


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
        if environ["PATH_INFO"] == CONTROL:
            return self._control(Request(environ))(environ, start)
        signed = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
        if not signed:
            with self._lock:
                return list(self._moto(environ, start))
        key, region, service = signed.groups()
        body = b""
        if service != "s3":  # objects may come in chunks; what is asked of S3 stands in its path
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            environ["wsgi.input"] = io.BytesIO(body)
        operation, asked = self._parse(service, environ)
        name = f"{service}.{operation.name if operation else ''}"
        with self._lock:
            self._called.add(service)
            fault = self.faults.before(name)
        if fault and fault.kind == "hangs":
            self._ended.wait(fault.seconds)
        elif fault and operation:
            return _respond(operation, _refusal(fault, service, name, asked), environ, start)
        with self._lock:
            return self._answer(service, region, key, operation, asked, body, environ, start)

    def _place(self, region: str) -> Place:
        if region not in self._places:
            self._places[region] = Place(self.account, region, self.clock, self.faults, _GONE)
        return self._places[region]

    def _parse(self, service: str, environ: Environ) -> tuple[OperationModel | None, Values]:
        """The operation by its model, and its parameters if they can be read without the body of an object."""
        request = Request(environ)
        try:
            operation, in_path = get_service_router(service).match(request)
            if service == "s3":
                return operation, {}
            protocol = determine_request_protocol(operation.service_model, request.content_type)
        except (UnknownServiceError, NotFound, NotImplementedError):
            return None, {}
        parser = PROTOCOL_PARSERS[protocol](operation)
        parts = {"method": request.method, "values": request.values, "headers": request.headers}
        parts |= {"body": request.data, "url_path": request.path, "url_params": in_path}
        return operation, parser.parse(parts)

    def _answer(
        self,
        service: str,
        region: str,
        key: str,
        operation: OperationModel | None,
        asked: Values,
        body: bytes,
        environ: Environ,
        start: Any,
    ) -> Iterable[bytes]:
        name = str(operation.name) if operation else ""
        found = (getattr(module, xform_name(name), None) for module in _OURS.get(service, ()) if name)
        handler = next(filter(None, found), None)
        if operation and handler:
            place = self._place(region)
            place.caller = self._caller(key, place.partition)
            result = self._ask(handler, place, operation, asked)
            if place.changed:
                self._saved.save(["ec2"], {region: place.records})
                place.changed = False
            if result is not None:
                return _respond(operation, result, environ, start)
        elif service in _WHOLE:
            text = f"{service}.{name or environ['PATH_INFO']} is not answered by this account (lab/account/README.md)"
            if operation:
                return _respond(operation, RefusedError("NotImplemented", text, 501), environ, start)
            return Response(text, 404)(environ, start)
        if service != "s3":
            environ["wsgi.input"] = io.BytesIO(body)
        answer = list(self._moto(environ, start))
        reads = name.startswith(_READS) if name else environ["REQUEST_METHOD"] in ("GET", "HEAD")
        if not reads:
            self._saved.save([service], {})
        return answer

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


def _refusal(fault: Fault, service: str, name: str, asked: Values) -> RefusedError:
    if fault.kind == "throttled":
        code, text, status = THROTTLED.get(service, THROTTLED[""])
        return RefusedError(code, text, status)
    if fault.kind == "refused":
        return RefusedError(fault.code, fault.message or fault.code)
    code, text = ROLE_MISSING.get(name, ("NoSuchEntity", "The role with name {arn} cannot be found."))
    role = next((asked[member] for member in _ROLE_MEMBERS if asked.get(member)), "")
    return RefusedError(code, text.format(arn=role))


def _respond(operation: OperationModel, result: Any, environ: Environ, start: Any) -> Iterable[bytes]:
    service = operation.service_model
    protocol = determine_request_protocol(service, environ.get("CONTENT_TYPE", ""))
    answer = get_serializer_class(str(service.service_name), protocol)(operation).serialize(result)
    status = getattr(result, "status", None) or answer["status_code"]
    headers = {**answer["headers"], "x-amzn-RequestId": str(uuid.uuid4())}
    return Response(answer["body"], status, headers)(environ, start)
