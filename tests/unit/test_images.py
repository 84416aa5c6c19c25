"""One loader for every kind of file that image folders hold."""

import io
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from recast_eval.errors import DataError
from recast_eval.images import decode_image, encode_for_judge, find_file, image_size, load_image

RNG = np.random.default_rng(0)
HERE = Path("picture")


def noise(height: int = 20, width: int = 30, channels: int = 3) -> np.ndarray:
    return RNG.integers(0, 256, (height, width, channels), dtype=np.uint8)


def save(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def test_a_png_is_read_as_it_is(tmp_path: Path) -> None:
    pixels = noise()
    path = tmp_path / "a.png"
    path.write_bytes(save(Image.fromarray(pixels)))
    loaded = load_image(path)
    assert np.array_equal(loaded.pixels, pixels)
    assert loaded.pixels.dtype == np.uint8
    assert len(loaded.sha256) == 64
    assert loaded.notes == ()
    assert load_image(path, sha256=loaded.sha256).sha256 == loaded.sha256


def test_changed_bytes_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(save(Image.fromarray(noise())))
    with pytest.raises(DataError, match=r"SHA-256.*changed"):
        load_image(path, sha256="0" * 64)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_pixels_take_the_stated_colour(mode: str) -> None:
    rgba = noise(channels=4)
    rgba[..., 3] = 0
    image = Image.fromarray(rgba)
    if mode == "P":
        image = Image.fromarray(noise()).quantize(8)
        image.info["transparency"] = bytes(8)
        data = save(image, transparency=bytes(8))
    else:
        data = save(image.convert(mode))
    pixels, notes = decode_image(data, path=HERE)
    assert (pixels == 255).all()
    assert notes == ("flattened",)
    pixels, _ = decode_image(data, path=HERE, background=(10, 20, 30))
    assert (pixels == [10, 20, 30]).all()


def test_half_alpha_mixes() -> None:
    rgba = np.zeros((4, 4, 4), np.uint8)
    rgba[..., 3] = 51  # a fifth black, four fifths white
    pixels, _ = decode_image(save(Image.fromarray(rgba)), path=HERE)
    assert (pixels == 204).all()


def test_a_sideways_photo_is_turned() -> None:
    pixels = noise()
    exif = Image.Exif()
    exif[0x0112] = 6
    sideways = save(Image.fromarray(np.rot90(pixels)), exif=exif.tobytes())
    got, notes = decode_image(sideways, path=HERE)
    assert np.array_equal(got, pixels)
    assert notes == ("transposed",)


def test_a_size_is_that_of_the_upright_picture(tmp_path: Path) -> None:
    exif = Image.Exif()
    for orientation, size in ((1, (30, 20)), (3, (30, 20)), (6, (20, 30))):
        exif[0x0112] = orientation
        (tmp_path / "a.png").write_bytes(save(Image.fromarray(noise()), exif=exif.tobytes()))
        assert image_size(tmp_path / "a.png") == size
        assert load_image(tmp_path / "a.png").pixels.shape[1::-1] == size
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(DataError, match="no image"):
        image_size(tmp_path / "a.png")


def test_sixteen_bits_are_rescaled_not_clipped() -> None:
    gray = np.array([[0, 257 * 100, 65535]], np.uint16)
    got, notes = decode_image(save(Image.fromarray(gray)), path=HERE)
    assert got[..., 0].tolist() == [[0, 100, 255]]
    assert notes == ("16-bit",)


def test_cmyk_becomes_rgb() -> None:
    data = save(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG")
    got, notes = decode_image(data, path=HERE)
    assert got.shape == (8, 8, 3)
    assert got[0, 0, 0] > 250
    assert got[0, 0, 1:].max() < 5
    assert "cmyk" in notes


def swapped_profile() -> bytes:
    """sRGB with its red and green primaries exchanged, as ICC bytes."""
    source = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    count = int.from_bytes(source[128:132])
    table = bytearray(source)
    for i in range(count):
        at = 132 + 12 * i
        name = source[at : at + 4]
        other = {b"rXYZ": b"gXYZ", b"gXYZ": b"rXYZ"}.get(name, name)
        table[at : at + 4] = other
        if name == b"desc":
            offset, size = (int.from_bytes(source[at + k : at + k + 4]) for k in (4, 8))
            text = source[offset : offset + size]
            table[offset : offset + size] = text.replace("sRGB".encode("utf-16-be"), bytes(8))
    return bytes(table)


def test_a_colour_profile_is_applied() -> None:
    data = save(Image.new("RGB", (8, 8), (255, 0, 0)), icc_profile=swapped_profile())
    got, notes = decode_image(data, path=HERE)
    assert np.abs(got[0, 0].astype(int) - [0, 255, 0]).max() <= 2
    assert notes == ("icc",)


def test_a_broken_profile_is_said_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    pixels = noise()
    got, notes = decode_image(save(Image.fromarray(pixels), icc_profile=b"nonsense"), path=HERE)
    assert np.array_equal(got, pixels)
    assert notes == ("icc ignored",)
    assert "profile" in caplog.text


def test_the_first_frame_counts() -> None:
    frames = [Image.new("RGB", (8, 8), c) for c in ("red", "blue")]
    data = save(frames[0], "GIF", save_all=True, append_images=frames[1:])
    got, notes = decode_image(data, path=HERE)
    assert (got[0, 0] == [255, 0, 0]).all()
    assert "first frame" in notes


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_a_truncated_file_is_an_error(kind: str, tmp_path: Path) -> None:
    data = save(Image.fromarray(noise(200, 200)), kind)
    path = tmp_path / f"cut.{kind.lower()}"
    path.write_bytes(data[: len(data) * 6 // 10])
    with pytest.raises(DataError, match=r"cut.*again"):
        load_image(path)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "0 bytes"),
        (b"<!DOCTYPE html><html>404</html>", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1\n", "LFS"),
        (b"hello", "not an image"),
    ],
)
def test_what_is_no_image_is_named(data: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(data)
    with pytest.raises(DataError, match=says) as caught:
        load_image(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.png.*no such image"):
        load_image(tmp_path / "gone.png")


def test_a_decompression_bomb_is_not_decoded() -> None:
    data = save(Image.new("1", (4000, 4000)))
    assert len(data) < 20_000
    with pytest.raises(DataError, match="1,000,000 pixels"):
        decode_image(data, path=HERE, max_pixels=1_000_000)
    with pytest.raises(DataError, match="pixels are not decoded"):
        decode_image(save(Image.new("1", (10_000, 10_000))), path=HERE)


def test_both_sides_are_encoded_by_one_rule() -> None:
    pixels = noise(60, 120)
    data = encode_for_judge(pixels, max_side=60)
    back, _ = decode_image(data, path=HERE)
    assert back.shape == (30, 60, 3)
    assert data == encode_for_judge(pixels.copy(), max_side=60)
    kept, _ = decode_image(encode_for_judge(pixels, max_side=512), path=HERE)
    assert np.array_equal(kept, pixels)


def test_a_small_picture_is_enlarged_by_a_whole_factor() -> None:
    pixels = noise(64, 64)
    big, _ = decode_image(encode_for_judge(pixels, max_side=512, min_side=250), path=HERE)
    assert big.shape == (256, 256, 3)
    assert np.array_equal(big[::4, ::4], pixels)


@pytest.mark.parametrize("kind", ["jpeg", "webp"])
def test_lossy_formats_stay_close(kind: str) -> None:
    flat = np.full((32, 32, 3), (220, 38, 38), np.uint8)
    back, _ = decode_image(encode_for_judge(flat, max_side=64, format=kind), path=HERE)  # type: ignore[arg-type]
    assert np.abs(back.astype(int) - flat).max() <= 4


@pytest.mark.parametrize("bad", [np.zeros((4, 4, 3)), np.zeros((4, 4), np.uint8)])
def test_only_rgb_bytes_are_encoded(bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match="uint8"):
        encode_for_judge(bad, max_side=8)


def test_unicode_forms_of_a_name_are_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nfd = unicodedata.normalize("NFD", "café.png")
    (tmp_path / nfd).write_bytes(b"x")
    assert find_file(tmp_path, unicodedata.normalize("NFC", nfd)).name == nfd
    assert "Unicode form" in caplog.text


def test_a_name_that_cannot_be_looked_up_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "loop.png").symlink_to("loop.png")
    for name in ("a" * 300 + ".png", "loop.png", "\ud800.png"):
        with pytest.raises(DataError, match="cannot be looked up") as caught:
            find_file(tmp_path, name)
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["../x.png", "/etc/passwd", "", "a/../../x.png", "link.png"])
def test_a_name_cannot_leave_its_folder(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    (tmp_path / "x.png").write_bytes(b"x")
    (folder / "link.png").symlink_to(tmp_path / "x.png")
    with pytest.raises(DataError, match="leaves the folder"):
        find_file(folder, name)
