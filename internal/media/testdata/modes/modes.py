#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes small pictures of every mode that Pillow's decoders tell apart, and those modes (modes.json)."""
import json
import pathlib

from PIL import Image

out = pathlib.Path(__file__).parent
clear, solid = (10, 20, 30, 0), (10, 20, 30, 255)
half = Image.new("RGBA", (8, 8), solid)
half.paste(clear, (0, 0, 4, 8))
rgb = Image.new("RGB", (8, 8), (200, 100, 50))
blue = Image.new("RGB", (8, 8), (0, 0, 250))


def save(name, image, **options):
    image.save(out / name, **options)


for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
    image = Image.new("I;16", (8, 8), 700) if mode == "I;16" else half.convert("RGB" if mode in "1LP" else "RGBA").convert(mode)
    save(f"{mode.replace(';', '')}.png", image)
save("RGB-trns.png", rgb, transparency=(200, 100, 50))
save("P-trns.png", rgb.convert("P"), transparency=0)
for mode in ("L", "RGB", "CMYK"):
    save(f"{mode}.jpg", rgb.convert(mode))
save("progressive.jpg", rgb, progressive=True)
save("plain.gif", rgb)
save("grey.gif", rgb.convert("L"))
save("animated.gif", rgb, save_all=True, append_images=[blue])
for lossless in (False, True):
    kind = "lossless" if lossless else "lossy"
    exif = Image.Exif()
    exif[0x0112] = 1
    save(f"rgb-{kind}.webp", rgb, lossless=lossless)
    save(f"rgba-{kind}.webp", half, lossless=lossless)
    save(f"solid-{kind}.webp", Image.new("RGBA", (8, 8), solid), lossless=lossless, exact=True)
    save(f"exif-{kind}.webp", rgb, lossless=lossless, exif=exif)
    save(f"exif-alpha-{kind}.webp", half, lossless=lossless, exif=exif)
    save(f"animated-{kind}.webp", rgb, save_all=True, append_images=[blue], lossless=lossless)
    save(f"animated-alpha-{kind}.webp", half, save_all=True, append_images=[rgb.convert("RGBA")], lossless=lossless)
    save(f"animated-late-alpha-{kind}.webp", rgb.convert("RGBA"), save_all=True, append_images=[half], lossless=lossless)
modes = {f.name: Image.open(f).mode for f in sorted(out.iterdir()) if f.suffix[1:] in ("png", "jpg", "gif", "webp")}
(out / "modes.json").write_text(json.dumps(modes, indent=1) + "\n")
