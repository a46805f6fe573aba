"""S3 as a place that models come from. boto3 and what it brings are imported only where a bucket is asked for."""

from __future__ import annotations

import dataclasses
import errno
import functools
import importlib
import os
import re
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from modelfolder import names
from podkit import lines, pool
from podkit.errors import Exit, FaststartError, destination_error
from podkit.patience import Patience
from podkit.threads import NoThreadError, is_refusal, possible
from publish.remote import MAX_FILES, Listing, RemoteFile, listed

PART_BYTES = 32 << 20
"""Bytes that one request asks for: a third of a second of one connection to S3, and 25,000 requests for 800 GB."""

TRIES = 8
"""How often a request is made that fails for the moment: 71 s at most of pauses (botocore/retries/standard.py). A
connection that breaks in the middle of an answer is made anew as often, without pauses (s3transfer/download.py). The
CRT has limits of its own: it gives up a stalled object after six tries of 30 s (measured, awscrt 0.38.1)."""

CRT_GIB = 4
"""GiB of buffers that the CRT may have: 128 parts. By itself it takes up to 24, by the speed that it finds the machine
to have (awslabs/aws-c-s3: source/s3_client.c, aws_s3_client_new); versions that do not know the variable, up to 8."""

_CRT_MEMORY = "AWS_CRT_S3_MEMORY_LIMIT_IN_GIB"

CONNECT_SECONDS = 10
READ_SECONDS = 30

ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")
"""Storage classes of objects that must be restored before they are read (S3 User Guide, "Restoring an archived
object"). That one of INTELLIGENT_TIERING is archived shows only when it is read."""

_ADDRESS = re.compile("s3://([A-Za-z0-9._-]{3,255})(?:/([^\ud800-\udfff]*))?")  # what UTF-8 has no bytes for
_REQUESTER_PAYS = re.compile("requester.?pay|request.?payer", re.IGNORECASE)
_NOT_PAID = "which publish does not do: copy the model into a bucket of your own first"
_ELSEWHERE = ("PermanentRedirect", "TemporaryRedirect", "Redirect", "IllegalLocationConstraintException")
_GONE = (404, 412, 416)  # no such object, not with this ETag, not that long
_SLICE = 0.1  # seconds between two looks at whether to stop
_STS_SECONDS = 2  # what the name of the caller is worth waiting for
_NAME = "content"
_BESIDE_REQUESTS = 6  # threads of s3transfer for what is no request (s3transfer/manager.py: TransferConfig)


def parse(address: str) -> tuple[str, str]:
    """Return the bucket of an address, and the prefix without slashes at its end.

    Raises:
        FaststartError: 2, it is none.
    """
    match = _ADDRESS.fullmatch(address)
    if match:
        return match[1], (match[2] or "").rstrip("/")
    message = (
        "is no address in S3: s3://BUCKET and s3://BUCKET/FOLDER are, in UTF-8; the name of a bucket has 3 to 255 "
        "letters, digits, dots, hyphens and underscores, and an access point is named by its alias"
    )
    raise FaststartError(Exit.USAGE, message, address.encode("utf-8", "surrogateescape"))


def open_s3(address: str, patience: Patience, parallel: int) -> S3Remote:
    """Return the place that an address stands for; nothing is asked of S3 yet.

    Args:
        address: s3://BUCKET or s3://BUCKET/FOLDER.
        patience: asked whether to stop.
        parallel: how many requests may be under way at once.

    Raises:
        FaststartError: 2, the address is none, or this Python has no boto3.
    """
    bucket, prefix = parse(address)
    try:
        for library in ("boto3", "s3transfer"):
            importlib.import_module(library)
    except ImportError as error:
        raise FaststartError(Exit.USAGE, f"s3:// needs boto3, which this Python has not: {error}") from error
    return S3Remote(bucket, prefix, patience, parallel)


def sort_out(objects: Iterable[Mapping[str, Any]], folder: str) -> tuple[list[RemoteFile], list[bytes]]:
    """Return the files and the empty folders that some objects stand for; a name that cannot be is not refused here.

    Args:
        objects: as ListObjectsV2 has them. One without content whose key ends in a slash stands for a folder.
        folder: what each key begins with; empty, or ends in a slash.

    Raises:
        KeyError, TypeError, ValueError: an object has no key, size or ETag, or fewer bytes than none.
    """
    files: list[RemoteFile] = []
    markers: set[bytes] = set()
    for entry in objects:
        path, size = entry["Key"][len(folder) :].encode(), entry["Size"]
        if size < 0:
            raise ValueError(f"an object has {size} bytes")
        if path.endswith(b"/") and not size:
            markers.add(path[:-1])
        elif path or size:
            files.append(RemoteFile(path, size, f"{entry['ETag']} {size}"))
    used = names.with_parents([], [*markers, *(file.path for file in files)])
    return files, sorted(markers - used)


class S3Remote:
    """The objects below a prefix; see `publish.remote.Remote`. Region, endpoint and credentials are boto3's own."""

    def __init__(self, bucket: str, prefix: str, patience: Patience, parallel: int):
        self._bucket = bucket
        self._folder = f"{prefix}/" if prefix else ""
        self._address = f"s3://{bucket}/{prefix}" if prefix else f"s3://{bucket}"
        self._patience = patience
        self._parallel = parallel
        self._etags: dict[str, str] = {}
        self._client: Any = None
        self._manager: Any = None

    def listing(self) -> Listing:
        """Return what is there now. The version of a file is its ETag and its size.

        Raises:
            FaststartError: 2, boto3's settings make no sense, what answers is no S3, or there are more than MAX_FILES
                objects; 6, no such bucket, or nothing in it begins with the prefix; 7, no credentials, no access, or
                another region; 11, network; 143, SIGTERM.
        """
        found: list[Listing] = []
        # In a thread, so that SIGTERM is noticed while the network hangs.
        pool.each([self._address], lambda _: found.append(self._list()), self._patience, threads=1)
        return found[0]

    def fetch(self, file: RemoteFile, folder: str, progress: Callable[[int], None]) -> str:
        """Bring an object of the last listing whole, in parts if it is large; called from several threads.

        Each request carries the listed ETag as a condition, so that S3 itself refuses to give another object's bytes;
        botocore of 2025 and later, without the CRT, also compares the checksum of an object that has one and came in
        one piece. Nothing is resumed: what an earlier try left in the folder is removed, and the object brought anew.

        Args:
            file: one of the last listing.
            folder: exists, for this file alone.
            progress: told how many more bytes have come, from several threads, and fewer than none where a part of them
                has to come again.

        Returns:
            Where in the folder the file lies; its size is the listed one.

        Raises:
            FaststartError: 2, boto3's settings make no sense; 3, the disk is full; 7, no access, or the object is
                archived; 8, it is another than the listed one, or gone; 9, the file cannot be written; 11, network;
                143, SIGTERM.
        """
        self._patience.check()
        key = self._key(file.path)
        target = Path(folder, _NAME)
        try:
            for left in Path(folder).iterdir():
                left.unlink()
            self._etags[key] = _etag(file)
            transfer = _Transfer(file, progress)
            future = self._manager.download(self._bucket, key, str(target), subscribers=[transfer])
            while not transfer.ended.wait(_SLICE):
                if self._patience.stopped or transfer.failure:
                    future.cancel()
                    self._patience.check()
                    break
            if transfer.failure:
                raise transfer.failure  # noqa: TRY301
            future.result()
            size = target.stat().st_size
        except FaststartError:
            raise
        except Exception as error:
            failure = self._fetch_failure(error, file.path)
            if failure is None:
                raise
            raise failure from error
        if size != file.size:
            raise FaststartError(Exit.CHANGED, f"came with {size} bytes, {file.size} were listed", file.path)
        return str(target)

    def _key(self, path: bytes) -> str:
        return self._folder + path.decode()

    def _list(self) -> Listing:
        from botocore.exceptions import BotoCoreError, ClientError

        objects: list[dict[str, Any]] = []
        region = None
        try:
            client = self._connect()
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._folder)
            for page in pages:
                self._patience.check()
                objects += page.get("Contents", ())
                if len(objects) > MAX_FILES:
                    message = f"holds more than {MAX_FILES} objects, more than any model: name the folder of one"
                    raise FaststartError(Exit.USAGE, message, self._address.encode())
                region = page["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region")
            if self._manager is None:
                self._manager = self._new_manager(region or client.meta.region_name)
        except ClientError as error:
            raise self._listing_refusal(error) from error
        except BotoCoreError as error:
            raise self._library_failure(error, self._address.encode()) or error from error
        except ValueError as error:  # an endpoint that is no URL
            raise _unusable(error, self._address.encode()) from error
        except RecursionError as error:  # botocore asks for the bucket's region, is redirected, asks for it, ...
            message = (
                f"{self._client.meta.endpoint_url} redirects each request, and to no region: is it an S3 endpoint?"
            )
            raise FaststartError(Exit.USAGE, message, self._address.encode()) from error
        try:
            files, folders = sort_out(objects, self._folder)
        except (KeyError, TypeError, ValueError) as error:
            message = (
                f"{self._client.meta.endpoint_url} lists an object without key, size or ETag: is it an S3 endpoint?"
            )
            raise FaststartError(Exit.USAGE, message, self._address.encode()) from error
        if not files:
            message = (
                f"holds no file: in bucket {self._bucket} no file's key begins with {self._folder!r} "
                "(capital and small letters differ)"
            )
            raise FaststartError(Exit.NO_MODEL, message, self._address.encode())
        archived = {
            entry["Key"][len(self._folder) :].encode(): entry["StorageClass"]
            for entry in objects
            if entry.get("StorageClass") in ARCHIVES
        }
        held = (
            dataclasses.replace(file, hold=functools.partial(self._hold_restored, file.path, archived[file.path]))
            if file.path in archived
            else file
            for file in files
        )
        return Listing(self._address, listed(held), tuple(folders))

    def _hold_restored(self, path: bytes, storage_class: str) -> None:
        """Hold that an object of an archive class was restored: the listing shows the same class before and after.

        Raises:
            FaststartError: 7, it was not, or may not be asked for; 8, it is gone; 11, network.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            restore = self._client.head_object(Bucket=self._bucket, Key=self._key(path)).get("Restore", "")
        except (BotoCoreError, ClientError) as error:
            raise self._fetch_failure(error, path) or error from error
        if 'ongoing-request="false"' not in restore:
            raise FaststartError(Exit.NOT_PERMITTED, _archived(storage_class), path)

    def _connect(self) -> Any:
        """Return the client; the first call makes it, in which boto3 looks for credentials."""
        if self._client is None:
            import boto3.session

            session = self._new_session()
            self._client = boto3.session.Session(botocore_session=session).client("s3", config=self._config())
            if lines.holds_secret(self._client.meta.endpoint_url):
                message = (
                    "the endpoint of S3, AWS_ENDPOINT_URL or endpoint_url of the profile, has a user name, a password "
                    "or a token in it: https://HOST is one; keys come from the profile or the pod's identity"
                )
                raise FaststartError(Exit.USAGE, message, self._address.encode())
        return self._client

    def _new_session(self) -> Any:
        import botocore.session

        session = botocore.session.Session()
        session.register("provide-client-params.s3.GetObject", self._bind)
        return session

    def _config(self) -> Any:
        from botocore.config import Config

        return Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": TRIES},
            max_pool_connections=self._parallel,
        )

    def _bind(self, params: dict[str, Any], **_: object) -> dict[str, Any]:
        """Make a request for an object one for the listed content: s3transfer does so only for some, in late versions.

        Args:
            params: of GetObject.
        """
        return {**params, "IfMatch": self._etags[params["Key"]]}

    def _new_manager(self, region: str) -> Any:
        """Return what brings all objects: the AWS CRT where this Python has it, else s3transfer's threads.

        Args:
            region: where the bucket lies; the CRT follows no redirects.
        """
        try:
            from s3transfer import crt
        except ImportError:
            from boto3.s3.transfer import TransferConfig, create_transfer_manager

            # Beside those that call `fetch`; with fewer s3transfer fails, and without any each caller brings a file.
            wanted = 2 * self._parallel + _BESIDE_REQUESTS
            config = TransferConfig(
                multipart_threshold=PART_BYTES,
                multipart_chunksize=PART_BYTES,
                max_concurrency=self._parallel,
                num_download_attempts=TRIES,
                use_threads=possible(wanted) == wanted,
                preferred_transfer_client="classic",
            )
            return create_transfer_manager(self._client, config)
        os.environ.setdefault(_CRT_MEMORY, str(CRT_GIB))
        # Not by create_transfer_manager, whose sessions would know nothing of _bind, and whose endpoint is always AWS.
        session = self._new_session()
        credentials = crt.BotocoreCRTCredentialsWrapper(session.get_credentials())
        client = crt.create_s3_crt_client(
            region,
            credentials.to_crt_credentials_provider(),
            part_size=PART_BYTES,
            use_ssl=urlsplit(self._client.meta.endpoint_url).scheme == "https",
            verify=session.get_config_variable("ca_bundle"),
        )
        return crt.CRTTransferManager(client, crt.BotocoreCRTRequestSerializer(session, {"region_name": region}))

    def _listing_refusal(self, error: Any) -> FaststartError:
        arn = f"arn:{self._client.meta.partition}:s3:::{self._bucket}"
        action = f"s3:ListBucket on {arn} for the prefix {self._folder!r}"
        if _code(error) in ("NoSuchBucket", "InvalidBucketName"):
            message = f"there is no bucket {self._bucket} ({_said(error)})"
            return FaststartError(Exit.NO_MODEL, message, self._address.encode())
        return self._refusal(error, action, self._address.encode())

    def _fetch_failure(self, error: Exception, path: bytes) -> FaststartError | None:
        """Return what an error of a request or a download means, None if it is none of boto3's and no OSError."""
        from botocore.exceptions import ClientError
        from s3transfer import exceptions

        if is_refusal(error):
            return NoThreadError()
        if isinstance(error, exceptions.RetriesExceededError):
            return _broken(error.last_exception, path)
        # What late versions of s3transfer make of the refused condition of _bind; others pass on what S3 answered.
        if isinstance(error, getattr(exceptions, "S3DownloadFailedError", ())):
            return _changed(error, path)
        if not isinstance(error, ClientError):
            return self._library_failure(error, path)
        if _status(error) in _GONE:
            return _changed(_said(error), path)
        arn = f"arn:{self._client.meta.partition}:s3:::{self._bucket}/{self._key(path)}"
        action = f"s3:GetObject on {arn}"
        if "kms" in _said(error).lower():
            action = f"kms:Decrypt on the key that {arn} is encrypted with"
        elif _code(error) == "403":  # an answer to HEAD, which gives no reason
            action += " or kms:Decrypt on the key that it is encrypted with"
        return self._refusal(error, action, path)

    def _refusal(self, error: Any, action: str, file: bytes) -> FaststartError:
        """Return what an answer of S3 means that is an error.

        Args:
            error: a botocore.exceptions.ClientError.
            action: what the caller may not do if S3 denies access.
            file: what it is about.
        """
        answer, metadata = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
        status, code, said = _status(error), _code(error), _said(error)
        own = self._client.meta.region_name
        region = metadata.get("HTTPHeaders", {}).get("x-amz-bucket-region") or answer.get("Region")
        region = region and lines.name(region)
        if status >= 500 or status == 429 or code in ("RequestTimeout", "SlowDown"):
            message = f"S3 answered with an error {metadata.get('RetryAttempts', 0) + 1} times, the last was {said}"
            return FaststartError(Exit.NETWORK, message, file)
        if error.operation_name not in self._client.meta.service_model.operation_names:  # but one of STS or SSO
            return _no_credentials(error, file)
        if code in _ELSEWHERE or 300 <= status < 400 or (code == "AuthorizationHeaderMalformed" and region):
            where = f"region {region}: set AWS_DEFAULT_REGION to it" if region else "another region"
            message = f"the bucket {self._bucket} was asked for in region {own} and lies in {where} ({said})"
            return FaststartError(Exit.NOT_PERMITTED, message, file)
        if code == "InvalidObjectState":
            return FaststartError(Exit.NOT_PERMITTED, _archived(answer.get("StorageClass", "of S3")), file)
        if _REQUESTER_PAYS.search(said):
            message = f"the bucket {self._bucket} makes whoever asks pay (Requester Pays), {_NOT_PAID} ({said})"
            return FaststartError(Exit.NOT_PERMITTED, message, file)
        if code not in ("AccessDenied", "403"):
            return FaststartError(Exit.NOT_PERMITTED, f"S3 refuses it: {said}", file)
        if error.operation_name == "CreateSession":  # of a directory bucket, for whatever is asked of it
            action = (
                f"s3express:CreateSession on arn:{self._client.meta.partition}:s3express:{own}:*:bucket/{self._bucket}"
            )
        caller = "" if "arn:" in said else self._caller()
        elsewhere = f"; the bucket lies in region {region}, not in {own}" if region and region != own else ""
        message = (
            f"no access: {caller or 'the caller'} needs {action}, by its own policy and, if the bucket belongs to "
            f"another account, by the bucket's policy, too{elsewhere}; a bucket of another account that makes whoever "
            f"asks pay (Requester Pays) answers so, too, {_NOT_PAID} ({said})"
        )
        return FaststartError(Exit.NOT_PERMITTED, message, file, passing=_has_pod_identity())

    def _library_failure(self, error: Exception, file: bytes) -> FaststartError | None:
        """Return what an error means that is no answer of S3, None if it comes neither from boto3 nor from a file."""
        from botocore import exceptions as known
        from urllib3.exceptions import HTTPError

        credentials = (
            known.NoCredentialsError,
            known.PartialCredentialsError,
            known.CredentialRetrievalError,
            known.TokenRetrievalError,
            known.SSOError,
        )
        network = (
            known.HTTPClientError,
            known.ConnectionError,
            known.IncompleteReadError,
            known.FlexibleChecksumError,
            HTTPError,
            ssl.SSLError,
        )
        if isinstance(error, credentials):
            return _no_credentials(error, file)
        if getattr(error, "name", None) == "AWS_ERROR_NO_SPACE":
            return destination_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), file)
        if isinstance(error, network) or type(error).__module__.startswith(("s3transfer.", "awscrt.")):
            return _broken(error, file)
        if isinstance(error, known.BotoCoreError):
            return _unusable(error, file)
        return destination_error(error, file) if isinstance(error, OSError) else None

    def _caller(self) -> str | None:
        """Return the ARN of whose credentials are used, None where AWS does not say so at once."""
        import boto3.session
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError

        limits = Config(connect_timeout=_STS_SECONDS, read_timeout=_STS_SECONDS, retries={"total_max_attempts": 1})
        try:
            client = boto3.session.Session().client("sts", config=limits)
            domains = {urlsplit(one.meta.endpoint_url).netloc.partition(".")[2] for one in (client, self._client)}
            # Credentials for an S3 of another maker are none of AWS's business.
            return client.get_caller_identity()["Arn"] if len(domains) == 1 else None
        except (BotoCoreError, ClientError, ValueError):
            return None


class _Transfer:
    """What s3transfer tells and asks of one download: a subscriber, whose base class cannot be imported here.

    Attributes:
        ended: set when all is done, the file's last rename, too.
        failure: why no more of it is wanted.
    """

    def __init__(self, file: RemoteFile, progress: Callable[[int], None]):
        self.ended = threading.Event()
        self.failure: FaststartError | None = None
        self._came = 0
        self._lock = threading.Lock()
        self._file = file
        self._progress = progress

    def on_queued(self, future: Any, **_: object) -> None:
        """Tell what s3transfer would else ask S3 for; late versions take the ETag, too, and the CRT neither."""
        if hasattr(future.meta, "provide_transfer_size"):
            future.meta.provide_transfer_size(self._file.size)
        if hasattr(future.meta, "provide_object_etag"):
            future.meta.provide_object_etag(_etag(self._file))

    def on_progress(self, bytes_transferred: int, **_: object) -> None:
        """Pass on how many bytes came; more than were listed are not waited for."""
        with self._lock:
            self._came += bytes_transferred
            longer = self._came > self._file.size
        if longer:
            message = f"is longer than the {self._file.size} bytes that were listed"
            self.failure = FaststartError(Exit.CHANGED, message, self._file.path)
            return
        try:
            self._progress(bytes_transferred)
        except FaststartError as error:
            self.failure = error

    def on_done(self, **_: object) -> None:
        """Note the end, good or bad."""
        self.ended.set()


def _etag(file: RemoteFile) -> str:
    return file.version.rpartition(" ")[0]


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _status(error: Any) -> int:
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)


def _said(error: Any) -> str:
    return lines.name(f"{_code(error)}: {error.response.get('Error', {}).get('Message', '')}", lines.NAME_BYTES)


def _changed(said: object, path: bytes) -> FaststartError:
    return FaststartError(Exit.CHANGED, f"is not the object any more that was listed: {said}", path)


def _broken(error: Exception, file: bytes) -> FaststartError:
    text = f"S3 could not be read, after {TRIES} tries at most: {type(error).__name__}: {error}"
    return FaststartError(Exit.NETWORK, text, file)


def _unusable(error: Exception, file: bytes) -> FaststartError:
    return FaststartError(Exit.USAGE, f"boto3 cannot work with its settings: {error}", file)


def _archived(storage_class: str) -> str:
    return (
        f"lies in the archive {lines.name(storage_class)}: restore it first, or copy it to the storage class STANDARD"
    )


def _no_credentials(error: object, file: bytes) -> FaststartError:
    message = (
        "no AWS credentials: a pod has them by an EKS pod identity association of its service account, a shell by "
        f"AWS_PROFILE or aws configure ({error})"
    )
    return FaststartError(Exit.NOT_PERMITTED, message, file, passing=_has_pod_identity())


def _has_pod_identity() -> bool:
    """Say whether credentials come from the pod identity agent.

    The role and its association may be seconds old, and both are eventually consistent
    (https://docs.aws.amazon.com/eks/latest/APIReference/API_CreatePodIdentityAssociation.html).
    """
    return "AWS_CONTAINER_CREDENTIALS_FULL_URI" in os.environ
