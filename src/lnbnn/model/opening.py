"""From a model folder to a model: the settings that its manifest names, checked, and the model behind them."""

from __future__ import annotations

import os

from lnbnn.descriptors import open_descriptor
from lnbnn.errors import ModelFormatError, UnknownNameError
from lnbnn.methods import FUSION, METHODS
from lnbnn.model.folder import Snapshot, digest_of_manifest, open_model, read_manifest
from lnbnn.model.model import Model
from lnbnn.params import resolve

__all__ = ["load_model", "open_snapshot", "reopen_model"]


def load_model(path: str | os.PathLike[str], *, trust_network: bool = False) -> Model:
    """Open a model folder; see :func:`lnbnn.load`."""
    return open_snapshot(open_model(path, trust_network=trust_network))


def reopen_model(path: str, digest: str, trust_network: bool) -> Model:
    """Open a model that another process has open, for a worker's one thread; raises if it has changed since."""
    snapshot = open_model(path, trust_network=trust_network)
    if digest_of_manifest(snapshot.manifest) != digest:
        raise ModelFormatError(f"{path}: the model was changed while it was asked; run the command again.")
    model = open_snapshot(snapshot)
    model.settings.n_jobs = 1
    return model


def open_snapshot(snapshot: Snapshot) -> Model:
    """The model of an open folder, of one method or a fusion."""
    manifest = snapshot.manifest
    if "members" in manifest:
        return _open_fusion(snapshot)
    try:
        kind = resolve(METHODS, str(manifest.get("method")), "method")
    except UnknownNameError as error:
        raise ModelFormatError(f"{snapshot.folder}: {error}") from error
    try:
        descriptor = open_descriptor(manifest, snapshot.data, trust_network=snapshot.trust_network)
        stored = {"descriptor": descriptor, "descriptor_params": None} if "network" in manifest else {}
        saved = {kind.params_renamed.get(name, name): value for name, value in manifest["params"].items()}
        params = {**kind.params_before, **saved, **stored}
        for name, value in kind.params_gone.items():
            if params.pop(name, value) != value:
                raise ValueError(f"this lnbnn no longer has the setting {name!r}")
        settings = kind(**params)
        settings.check_settings()
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelFormatError(f"{snapshot.folder}: the manifest is damaged ({error}); fit the model again.") from error
    return Model.open(settings, descriptor, snapshot)


def _open_fusion(snapshot: Snapshot) -> Model:
    from lnbnn.model.fusion import FusionModel  # few models are fusions

    manifest = snapshot.manifest
    try:
        members = [_open_member(snapshot, place) for place in range(len(manifest["members"]))]
        named = [(name, one.settings.with_model(one)) for name, one in zip(manifest["members"], members, strict=True)]
        settings = resolve({FUSION: "lnbnn.classifiers.fusion:LateFusion"}, FUSION, "method")(
            named, **manifest["params"]
        )
        settings.check_settings()
        return FusionModel.open_members(settings, members, snapshot)
    except ModelFormatError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelFormatError(f"{snapshot.data}: the manifest is damaged ({error}); fit the model again.") from error


def _open_member(snapshot: Snapshot, place: int) -> Model:
    folder = snapshot.data / f"member{place}"
    method = read_manifest(folder).get("method")
    if method == FUSION:  # refused before it is opened: it could hold others, and so on
        raise ModelFormatError(
            f"{folder}: a member of a fusion must be one method; got {method!r}; fit the model again."
        )
    member = open_snapshot(open_model(folder, trust_network=snapshot.trust_network))
    if not member.is_calibrated:
        raise ModelFormatError(f"{folder}: a member of a fusion must be calibrated; fit the model again.")
    return member
