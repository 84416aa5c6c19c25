"""The one way in which an image file becomes pixels, and pixels become what a judge is sent.

Every scorer and every judge sees the same picture: upright, opaque on a stated colour,
sRGB, 8 bits, first frame. A file that is not a whole image is an error before any work.
"""

import hashlib
import io
import logging
import unicodedata
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Literal

import numpy as np
from PIL import ExifTags, Image, ImageCms, ImageOps, UnidentifiedImageError

from recast_eval.errors import DataError, reason, shorten

log = logging.getLogger(__name__)

Colour = tuple[int, int, int]
Format = Literal["png", "jpeg", "webp"]

WHITE: Final[Colour] = (255, 255, 255)
"""What shows through transparent pixels unless the caller says otherwise."""
MAX_PIXELS: Final = 50_000_000
MAX_BYTES: Final = 256 * 2**20
_FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
_SIXTEEN: Final = ("I;16", "I;16B", "I;16L", "I;16N")


@dataclass(frozen=True, slots=True)
class LoadedImage:
    """A picture as all scorers and judges see it."""

    pixels: np.ndarray
    """uint8 RGB, (H, W, 3), sRGB."""
    sha256: str
    """Of the file's bytes, 64 hex digits."""
    notes: tuple[str, ...] = ()
    """What had to be done to it: ``transposed``, ``flattened``, ``16-bit``, ``icc``, ..."""


def load_image(
    path: Path,
    *,
    background: Colour = WHITE,
    max_pixels: int = MAX_PIXELS,
    sha256: str | None = None,
) -> LoadedImage:
    """Read a file into pixels, by one rule for all.

    Args:
        path: PNG, JPEG, WebP, GIF, BMP, TIFF or PPM; its name's ending is not trusted.
        background: sRGB colour, 0-255, on which transparent pixels are flattened.
        max_pixels: More is refused before it is decoded (decompression bombs).
        sha256: Expected digest of the bytes, if known.

    Raises:
        DataError: Missing, empty, not an image, truncated, too large, or not the
            bytes that were promised; says what to do.
    """
    data = _read(path)
    found = hashlib.sha256(data).hexdigest()
    if sha256 is not None and sha256 != found:
        raise DataError(
            f"SHA-256 is {found[:12]}..., recorded was {sha256[:12]}...: the file was changed; "
            "restore it, or delete it and its line of metadata.jsonl",
            path=path,
        )
    pixels, notes = decode_image(data, path=path, background=background, max_pixels=max_pixels)
    return LoadedImage(pixels, found, notes)


def image_size(path: Path) -> tuple[int, int]:
    """Width and height in pixels, upright, from the file's head alone.

    Raises:
        DataError: It is missing, or no image.
    """
    try:
        with Image.open(path, formats=_FORMATS) as image:
            width, height = image.size
            sideways = image.getexif().get(ExifTags.Base.Orientation, 1) in (5, 6, 7, 8)
    except Exception as error:  # as in ``decode_image``
        raise DataError(f"no image that can be read ({error})", path=path) from error
    return (height, width) if sideways else (width, height)


def decode_image(
    data: bytes,
    *,
    path: Path,
    background: Colour = WHITE,
    max_pixels: int = MAX_PIXELS,
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Turn a file's bytes into uint8 RGB (H, W, 3), and say what had to be done.

    Args:
        data: The whole file.
        path: Its name, for messages only.
        background: As in ``load_image``.
        max_pixels: As in ``load_image``.

    Raises:
        DataError: As in ``load_image``.
    """
    notes: list[str] = []
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            if image.width * image.height > max_pixels:
                raise _too_large(path, f"{image.width}x{image.height}", max_pixels)
            if getattr(image, "n_frames", 1) > 1:
                notes.append("first frame")
                image.seek(0)
            image.load()
            upright = ImageOps.exif_transpose(image)
            if upright.size != image.size or upright.getexif() != image.getexif():
                notes.append("transposed")
            pixels = _to_srgb(upright, background, notes, path)
    except DataError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _too_large(path, str(error), max_pixels) from error
    except UnidentifiedImageError as error:
        raise DataError(f"{_sniff(data)}: make or download it again", path=path) from error
    except Exception as error:  # Pillow's decoders raise half a dozen kinds on hostile bytes
        raise DataError(
            f"truncated or damaged image ({error}): make or download it again", path=path
        ) from error
    return pixels, tuple(notes)


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DataError(f"larger than {MAX_BYTES >> 20} MB: reduce it", path=path)
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise DataError("no such image: restore it or remove its line", path=path) from error
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", path=path) from error
    if not data:
        raise DataError("the file is empty (0 bytes): make or download it again", path=path)
    return data


def _too_large(path: Path, size: str, limit: int) -> DataError:
    return DataError(f"{size}: more than {limit:,} pixels are not decoded; reduce it", path=path)


def _sniff(data: bytes) -> str:
    head = data[:256].lstrip().lower()
    if head.startswith((b"<!doctype", b"<html", b"<?xml", b"<svg")):
        return "not an image: it holds HTML or XML, perhaps an error page of a download"
    if head.startswith(b"version https://git-lfs"):
        return "not an image: it is a Git LFS pointer"
    return f"not an image that is read here ({', '.join(_FORMATS)})"


def _to_srgb(image: Image.Image, background: Colour, notes: list[str], path: Path) -> np.ndarray:
    if image.mode in _SIXTEEN or image.mode == "I":
        wide = np.asarray(image).astype(np.int64)
        if wide.min() < 0 or wide.max() > 65535:
            raise DataError("32-bit pixels: store it with 8 or 16 bits a channel", path=path)
        notes.append("16-bit")
        gray = ((wide + 128) // 257).astype(np.uint8)
        return np.repeat(gray[..., None], 3, axis=2)
    if image.mode == "F":
        raise DataError("float pixels: store it with 8 or 16 bits a channel", path=path)
    profile = image.info.get("icc_profile")
    alpha = None
    if image.has_transparency_data:
        notes.append("flattened")
        rgba = image.convert("RGBA")
        alpha, image = rgba.getchannel("A"), rgba.convert("RGB")
    elif image.mode not in ("RGB", "L", "CMYK"):
        image = image.convert("RGB")
    if profile:
        image = _apply_profile(image, profile, notes, path)
    if image.mode == "CMYK":
        notes.append("cmyk")
    image = image.convert("RGB")
    if alpha is not None:
        card = Image.new("RGB", image.size, background)
        card.paste(image, mask=alpha)
        image = card
    return np.array(image, dtype=np.uint8)


def _apply_profile(image: Image.Image, data: bytes, notes: list[str], path: Path) -> Image.Image:
    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(data))
        if "srgb" in ImageCms.getProfileDescription(profile).lower():
            return image
        converted = ImageCms.profileToProfile(
            image,
            profile,
            ImageCms.createProfile("sRGB"),
            renderingIntent=ImageCms.Intent.RELATIVE_COLORIMETRIC,
            outputMode="RGB",
            flags=ImageCms.Flags.BLACKPOINTCOMPENSATION,
        )
    except (ImageCms.PyCMSError, OSError, ValueError) as error:
        log.warning("%s: its colour profile cannot be used (%s); read as sRGB", path, error)
        notes.append("icc ignored")
        return image
    assert converted is not None  # noqa: S101 - None only with inPlace
    notes.append("icc")
    return converted


def encode_for_judge(
    pixels: np.ndarray,
    *,
    max_side: int,
    format: Format = "png",
    min_side: int = 0,
    quality: int = 95,
) -> bytes:
    """Encode a picture for sending; one rule for both sides of a pair.

    Args:
        pixels: uint8 RGB (H, W, 3).
        max_side: A longer side is reduced to this (Lanczos).
        format: ``png`` (lossless), ``jpeg`` or ``webp``.
        min_side: A shorter side below this is enlarged by the smallest whole factor
            that reaches it without passing ``max_side`` (nearest neighbour); 0 never does.
        quality: Of the lossy formats, 1-100.

    Returns:
        The file's bytes, free of metadata; equal pixels and rule give equal bytes.

    Raises:
        ValueError: Not uint8 RGB, or ``max_side`` below 1.
    """
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
        raise ValueError(f"pixels must be uint8 (H, W, 3), got {pixels.dtype} {pixels.shape}")
    if max_side < 1:
        raise ValueError(f"max_side must be at least 1, got {max_side}")
    image = Image.fromarray(pixels)
    long, short = max(image.size), min(image.size)
    if long > max_side:
        size = [max(1, round(s * max_side / long)) for s in image.size]
        image = image.resize((size[0], size[1]), Image.Resampling.LANCZOS)
    elif short < min_side:
        factor = max(1, min(-(-min_side // short), max_side // long))
        size = [s * factor for s in image.size]
        image = image.resize((size[0], size[1]), Image.Resampling.NEAREST)
    out = io.BytesIO()
    if format == "png":
        image.save(out, "PNG", compress_level=6)
    elif format == "jpeg":
        image.save(out, "JPEG", quality=quality, subsampling=0)
    else:
        image.save(out, "WEBP", quality=quality)
    return out.getvalue()


def find_file(folder: Path, name: str) -> Path:
    """Find a file that a table names, inside a folder and nowhere else.

    A name that differs in Unicode form alone (NFC or NFD) is found, with a warning.

    Raises:
        DataError: The name leaves the folder, or nothing has it.
    """
    parts = PurePosixPath(name)
    if not name or "\0" in name or parts.is_absolute() or ".." in parts.parts:
        raise DataError(f"file name {name!r} leaves the folder: name a file inside it", path=folder)
    path = folder / parts
    try:
        inside, there = path.resolve().is_relative_to(folder.resolve()), path.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # too long, links in a ring, no text
        raise DataError(
            f"file name {shorten(name)!r} cannot be looked up ({reason(error)}): name another",
            path=folder,
        ) from error
    if not inside:
        raise DataError(f"{name!r} is a link that leaves the folder: copy the file", path=folder)
    if there:
        return path
    wanted = unicodedata.normalize("NFC", parts.name)
    for other in sorted(path.parent.iterdir()) if path.parent.is_dir() else ():
        if unicodedata.normalize("NFC", other.name) == wanted and other.is_file():
            log.warning("%s: found as %r, another Unicode form of its name", path, other.name)
            return find_file(folder, other.relative_to(folder).as_posix())
    raise DataError(f"no image {shorten(name)!r} here: restore it or remove its line", path=folder)
