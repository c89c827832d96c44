"""The HTTP API: each request is read and checked, one function of the package is called, its result sent as JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from joblib import cpu_count
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from lnbnn.errors import ImageReadError, InvalidInputError
from lnbnn.page.change_queue import ChangeQueue
from lnbnn.page.events import Events
from lnbnn.page.guard import Limits, Places
from lnbnn.page.questions import answer, evidence
from lnbnn.page.replies import Refused, as_reply
from lnbnn.page.reports import ModelChanged, Reports, stopping
from lnbnn.page.served_model import Opened, Photo, ServedModel
from lnbnn.page.uploads import Uploads
from lnbnn.trust.left_out import left_out_answer
from lnbnn.version import __version__

__all__ = ["Api"]

_T = TypeVar("_T")
_MAX_NAME = 255
_SIDES = (256, 1024)
_REPORT_TRIES = 10


@dataclass(frozen=True)
class _Sent:
    """A photo of a request: its name, and its digest among the uploads; or why it was refused."""

    name: str
    digest: str = ""
    error: str | None = None


class Api:
    """The routes below ``/api``, and what they need."""

    def __init__(self, served: ServedModel, changes: ChangeQueue, events: Events, limits: Limits) -> None:
        self.served, self.changes, self.events, self.limits = served, changes, events, limits
        self.photo_store = served.photo_store
        self.uploads = Uploads(limits.photo_bytes)
        self.reports = Reports(events, self.photo_store)
        self._pool = ThreadPoolExecutor(cpu_count(), thread_name_prefix="answer")
        self._questions = Places(limits.n_questions, "questions")
        self._uploading = Places(limits.n_uploads, "uploads")
        self._listeners = Places(limits.n_listeners, "open pages")

    def let_go(self) -> None:
        """Before the server stops: disconnect listeners and cancel reports."""
        self.events.close()
        self.reports.close()

    def close(self) -> None:
        """Stop all work and remove the uploads."""
        self.let_go()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.uploads.close()

    def routes(self) -> list[Route]:
        """All routes; the page ``/api`` documents each."""
        return [
            Route("/api/model", self.model),
            Route("/api/images", self.images),
            Route("/api/images/{id:int}", self.image),
            Route("/api/images/{id:int}/picture", self.picture),
            Route("/api/predict", self.predict, methods=["POST"]),
            Route("/api/explain", self.explain, methods=["POST"]),
            Route("/api/add", self.add, methods=["POST"]),
            Route("/api/remove", self.remove, methods=["POST"]),
            Route("/api/relabel", self.relabel, methods=["POST"]),
            Route("/api/undo", self.undo, methods=["POST"]),
            Route("/api/improve", self.improve, methods=["POST"]),
            Route("/api/audit", self.audit),
            Route("/api/decide", self.decide, methods=["POST"]),
            Route("/api/evaluation", self.evaluation),
            Route("/api/events", self.listen),
        ]

    # ---- looking ------------------------------------------------------------------------------------------------

    async def model(self, request: Request) -> Response:
        """The model: ``lnbnn info --format json``, and the state of the queue."""
        opened = self.served.opened
        own = {"name": self.served.path.name, "version": __version__, **self.changes.state()}
        if opened is None:
            return as_reply(own | {"generation": 0, "n_images": 0, "n_classes": 0, "classes": {}})
        model = opened.classifier.fitted()
        facts = await self._run(model.facts)
        can = {"is_calibrated": model.is_calibrated, "can_reject": model.can_reject}
        labels = model.references.classes.tolist()
        return as_reply(facts | own | can | {"generation": opened.generation, "labels": labels})

    async def images(self, request: Request) -> Response:
        """The labeled photos: ``lnbnn list --format json``, with the name each was sent under."""
        opened, label = self.served.opened, request.query_params.get("label")
        images = [] if opened is None else list(opened.images.values())

        def listed() -> Response:
            found = [
                image.as_json() | {"name": self.photo_store.name_of(image)}
                for image in images
                if label is None or str(image.label) == label
            ]
            return as_reply({"generation": 0 if opened is None else opened.generation, "images": found})

        return await self._run(listed)

    async def image(self, request: Request) -> Response:
        """A labeled photo: its answer when it is left out, and the photos most similar to it."""
        opened = self.served.now()
        with self._questions:
            found = await self._run(left_out_answer, opened.classifier, request.path_params["id"])
        return as_reply(found.as_json() | {"name": self.photo_store.name_of(found.image)})

    async def picture(self, request: Request) -> Response:
        """A labeled photo as a JPEG of about this size."""
        image = self.served.now().images.get(request.path_params["id"])
        if image is None:
            raise Refused(404, "no photo of the model has this id.")
        wanted = _number(request, "size", 256, 1, 4096)
        side = next((side for side in _SIDES if side >= wanted), _SIDES[-1])
        with self._questions:
            data = await self._run(self.photo_store.picture, image, side)
        if data is None:
            raise Refused(404, "the file of this photo is missing or has changed.")
        is_named = request.query_params.get("of", "") == (image.digest or "?")[:12]
        caching = {"Cache-Control": "private, max-age=604800, immutable"} if is_named else {}
        return Response(data, media_type="image/jpeg", headers=caching)

    async def audit(self, request: Request) -> Response:
        """What looks wrong: ``lnbnn audit --format json``, with the decisions so far."""
        found, opened = await self._report("audit")
        return as_reply(self.reports.decided(found, opened) | {"generation": opened.generation})

    async def evaluation(self, request: Request) -> Response:
        """Leave-one-out accuracy."""
        found, opened = await self._report("evaluation")
        return as_reply(found | {"generation": opened.generation})

    async def _report(self, kind: str) -> tuple[dict[str, Any], Opened]:
        """A report, and the version of the model it is on: a newer one if that was asked for in the meantime."""
        for _ in range(_REPORT_TRIES):
            opened = self.served.now()
            report = self.reports.of(kind, opened)
            try:
                return await asyncio.wrap_future(report), opened
            except ModelChanged:
                continue
            except asyncio.CancelledError:
                if report.cancelled():
                    raise stopping() from None
                raise
        raise Refused(409, "the model changes too often for a report on it; try again.")

    async def listen(self, request: Request) -> Response:
        """Server-sent events."""
        self._listeners.check()

        async def text() -> AsyncIterator[str]:
            with self._listeners:  # taken when the reply begins, so that one that never begins holds no place
                async for part in self.events.listen():
                    yield part

        return StreamingResponse(text(), media_type="text/event-stream")

    # ---- asking -------------------------------------------------------------------------------------------------

    async def predict(self, request: Request) -> Response:
        """Which class photos belong to: ``lnbnn predict --format json``. A photo gets an object, a form a list."""
        opened = self.served.now()
        rate = _rate(request)
        top = _number(request, "top", 5, 1, 10_000)
        if rate is not None and not opened.classifier.fitted().can_reject:
            raise InvalidInputError(
                'the model cannot answer "unknown" yet; it needs three classes with two photos each.'
            )
        with self._questions:
            sent, is_form = await self._photos(request)
            found = await asyncio.gather(*(self._answer(opened, one, top, rate) for one in sent))
        if not is_form and "error" in found[0]:
            return as_reply(found[0], 422)
        return as_reply(found if is_form else found[0])

    async def _answer(self, opened: Opened, sent: _Sent, top: int, rate: float | None) -> dict[str, Any]:
        if sent.error is not None:
            return {"path": sent.name, "label": None, "ranking": [], "error": sent.error}
        with self.uploads.hold(sent.digest) as file:
            found = await self._run(partial(answer, opened, file, sent.name, top=top, reject=rate))
        return found | {"photo": sent.digest}

    async def explain(self, request: Request) -> Response:
        """Why a photo gets its answer: ``lnbnn explain --format json``, with the map of the evidence."""
        opened, params = self.served.now(), request.query_params
        with self._questions:
            digest = params.get("photo") or (await self._photo(request)).digest
            ask: dict[str, Any] = {"label": params.get("label"), "against": params.get("against")}
            ask["top"] = _number(request, "top", 20, 1, 1 << 24)
            with self.uploads.hold(digest) as file:
                found = await self._run(partial(evidence, opened, self.photo_store, file, **ask))
        return as_reply(found | {"photo": digest})

    # ---- changing -----------------------------------------------------------------------------------------------

    async def add(self, request: Request) -> Response:
        """Add photos of one class: ``lnbnn add --format json``. They are in the model when the reply comes."""
        label = request.query_params.get("label", "")
        if not label.strip():
            raise InvalidInputError("expected the name of the class, ?label=NAME; got none.")
        with self._uploading:
            if "photo" in request.query_params:
                sent = [_Sent(_name(request.query_params.get("name")), request.query_params["photo"])]
            else:
                sent, _ = await self._photos(request)
            kept, skipped = await self._run(self._keep, sent)
            try:
                result: dict[str, Any] = {"added": [], "duplicates": [], "doubles": [], "skipped": []}
                if kept:
                    result = await asyncio.wrap_future(self.changes.add(kept, label))
            finally:
                for photo in kept:
                    self.photo_store.release(photo.digest)
        return as_reply(result | {"skipped": skipped + result["skipped"]})

    def _keep(self, sent: list[_Sent]) -> tuple[list[Photo], list[list[str]]]:
        """Store the photos; list those that are not pictures."""
        kept: list[Photo] = []
        skipped = [[one.name, one.error] for one in sent if one.error is not None]
        try:
            for one in sent:
                if one.error is None:
                    with self.uploads.hold(one.digest) as file:
                        try:
                            kept.append(Photo(self.photo_store.keep(file, one.name), one.name))
                        except ImageReadError as error:
                            skipped.append([one.name, str(error).replace(str(file), one.name)])
        except BaseException:
            for photo in kept:
                self.photo_store.release(photo.digest)
            raise
        return kept, skipped

    async def remove(self, request: Request) -> Response:
        """Remove photos by their ids."""
        content = await _json(request)
        return as_reply(await asyncio.wrap_future(self.changes.remove(_ids(content))))

    async def relabel(self, request: Request) -> Response:
        """Give photos another label."""
        content = await _json(request)
        ids, label = _ids(content), content.get("label")
        if not isinstance(label, str | int) or isinstance(label, bool):
            raise InvalidInputError('expected {"ids": [...], "label": NAME}.')
        return as_reply(await asyncio.wrap_future(self.changes.relabel(ids, str(label))))

    async def undo(self, request: Request) -> Response:
        """Undo the last change made through the page."""
        return as_reply(await asyncio.wrap_future(self.changes.undo()))

    async def improve(self, request: Request) -> Response:
        """Choose the method and its settings again on all photos, as ``lnbnn fit`` does; it may take minutes."""
        self.served.now()
        return as_reply(await asyncio.wrap_future(self.changes.improve()))

    async def decide(self, request: Request) -> Response:
        """Store a decision about an audit entry."""
        content, opened = await _json(request), self.served.now()
        name, decision, labels = str(content.get("list")), str(content.get("decision")), content.get("labels")
        if not isinstance(labels, list) or not all(isinstance(label, str | int) for label in labels):
            raise InvalidInputError('expected {"list": ..., "ids": [...], "labels": [...], "decision": ...}.')
        await self._run(self.reports.decide, opened, name, _ids(content), labels, decision)
        return as_reply({"decided": decision})

    # ---- reading requests ---------------------------------------------------------------------------------------

    async def _run(self, work: Callable[..., _T], *args: Any) -> _T:
        """Run slow work in a thread, first come, first served."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    async def _photo(self, request: Request) -> _Sent:
        sent, _ = await self._photos(request)
        if len(sent) != 1:
            raise InvalidInputError(f"expected one photo; got {len(sent)}.")
        return sent[0]

    async def _photos(self, request: Request) -> tuple[list[_Sent], bool]:
        """The photos of a request, and whether they came in a form."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "multipart/form-data":
            if kind and not kind.startswith("image/") and kind != "application/octet-stream":
                raise Refused(415, "expected a photo as the body (Content-Type: image/...), or a form of files.")
            name = _name(request.query_params.get("name"))
            return [_Sent(name, await self.uploads.take(request.stream()))], False
        limits = self.limits
        async with request.form(max_files=limits.n_files, max_fields=20) as form:
            sent = await self._run(self._take_files, form)
        if not sent:
            raise InvalidInputError("expected files in the form; got none.")
        return sent, True

    def _take_files(self, form: FormData) -> list[_Sent]:
        sent = []
        for _, upload in form.multi_items():
            if isinstance(upload, UploadFile):
                name = _name(upload.filename)
                try:
                    sent.append(_Sent(name, self.uploads.take_file(upload.file)))
                except Refused as error:
                    sent.append(_Sent(name, error=f"{name}: {error}"))
        return sent


def _name(given: str | None) -> str:
    """A name to show; it is never part of a path."""
    return (given or "photo")[-_MAX_NAME:]


def _rate(request: Request) -> float | None:
    given = request.query_params.get("reject")
    try:
        return None if given is None else float(given)
    except ValueError:
        raise InvalidInputError(f"reject must be a number between 0 and 1; got {given!r}.") from None


def _number(request: Request, name: str, default: int, low: int, high: int) -> int:
    given = request.query_params.get(name, str(default))
    if not given.isdecimal() or len(given) > 9 or not low <= int(given) <= high:
        raise InvalidInputError(f"{name} must be a whole number from {low} to {high}; got {given[:20]!r}.")
    return int(given)


async def _json(request: Request) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "expected JSON (Content-Type: application/json).")
    try:
        content = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise Refused(400, "the request is not JSON.") from None
    if not isinstance(content, dict):
        raise InvalidInputError("expected a JSON object.")
    return content


def _ids(content: dict[str, Any]) -> list[int]:
    ids = content.get("ids")
    if not isinstance(ids, list) or not all(isinstance(number, int) and not isinstance(number, bool) for number in ids):
        raise InvalidInputError('expected {"ids": [...]}, whole numbers.')
    return ids
