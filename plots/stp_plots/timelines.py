"""SVG timelines made fit for the page: well-formed, no scripts, names that cannot clash, nothing external."""

import base64
import re
from html import escape
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"
DROPPED = {"script", "foreignObject", "iframe", "image", "metadata", "a"}
REFERENCE = re.compile(r"url\(\s*['\"]?#([^)'\"]+)['\"]?\s*\)")
EXTERNAL = re.compile(r"url\(\s*['\"]?(?!#)[^)]*\)|@import[^;]*;?", re.IGNORECASE)


def inline(source, prefix, title):
    """The drawing as an element of an HTML page, and its width in pixels or None; None if `source` holds none."""
    try:
        root = ElementTree.fromstring(source)
    except ElementTree.ParseError:
        return None
    if root.tag not in (SVG + "svg", "svg") or len(root) == 0:
        return None
    style = "".join(element.text or "" for element in root.iter() if element.tag in (SVG + "style", "style"))
    if "@" in style:  # rules that scope() does not understand: shown as a picture, which nothing leaks out of
        data = base64.b64encode(source.encode()).decode()
        return f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(title)}">', None
    _clean(root, prefix)
    width = _sized(root)
    described = root.find("desc")
    root.set("role", "img")
    root.set("aria-label", (described.text if described is not None else None) or title)
    root.set("id", prefix)
    return ElementTree.tostring(root, encoding="unicode"), width


def _clean(element, prefix):
    element.tag = element.tag.rpartition("}")[2]
    for name, value in list(element.attrib.items()):
        local = name.rpartition("}")[2]
        if local.lower().startswith("on") or (local == "href" and not value.startswith("#")):
            del element.attrib[name]
            continue
        value = EXTERNAL.sub("none", REFERENCE.sub(rf"url(#{prefix}-\1)", value))
        if local == "id":
            value = f"{prefix}-{value}"
        elif local == "href":
            value = f"#{prefix}-{value[1:]}"
        del element.attrib[name]
        element.set("xml:space" if name.endswith("}space") else local, value)
    if element.tag == "style":
        element.text = scope(element.text or "", prefix)
    for child in list(element):
        if not isinstance(child.tag, str) or child.tag.rpartition("}")[2] in DROPPED:
            element.remove(child)
        else:
            _clean(child, prefix)


def scope(css, prefix):
    """Plain style rules confined to the drawing, since a page's styles hold for all of it."""
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    css = EXTERNAL.sub("none", REFERENCE.sub(rf"url(#{prefix}-\1)", css))

    def confine(rule):
        selectors = (selector.strip() for selector in rule[1].split(","))
        # An id within the drawing has its prefix; `svg` and `:root` are the drawing itself.
        inner = (re.sub(r"#([\w-]+)", rf"#{prefix}-\1", selector) for selector in selectors)
        return ", ".join(f"#{prefix}" if s in ("svg", ":root") else f"#{prefix} {s}" for s in inner) + " {"

    return re.sub(r"([^{}]+)\{", confine, css)


def _sized(root):
    """Gives the drawing a viewBox, so that it shrinks with the page, for its own width, which is returned if known."""
    sizes = [re.fullmatch(r"\s*([\d.]+)(px)?\s*", root.attrib.pop(side, "")) for side in ("width", "height")]
    if "viewBox" not in root.attrib and all(sizes):
        root.set("viewBox", f"0 0 {sizes[0][1]} {sizes[1][1]}")
    box = root.get("viewBox", "").replace(",", " ").split()
    try:
        return float(box[2])
    except (IndexError, ValueError):
        return None
