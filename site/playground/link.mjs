// A permalink: the text, compressed, and the settings, in the fragment, which browsers do not send to a server.

const SETTINGS = { name: "n", release: "r", chip: "c", devices: "d" };

async function collect(stream, most) {
  const reader = stream.getReader();
  const parts = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > most) {
      await reader.cancel();
      throw new Error("too long"); // a short link can unpack to gigabytes
    }
    parts.push(value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

const through = (bytes, transform) => new Blob([bytes]).stream().pipeThrough(transform);

export async function pack(text, settings) {
  const bytes = await collect(through(new TextEncoder().encode(text), new CompressionStream("deflate-raw")), Infinity);
  let letters = "";
  for (let at = 0; at < bytes.length; at += 0x8000) letters += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  const words = new URLSearchParams();
  for (const [name, letter] of Object.entries(SETTINGS)) if (settings[name]) words.set(letter, settings[name]);
  words.set("z", btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, ""));
  return `#${words}`;
}

/** Return the text and the settings of a fragment; null if it has none. Throws if it is damaged or too long. */
export async function unpack(fragment, most) {
  const words = new URLSearchParams(fragment.replace(/^#/, ""));
  const packed = words.get("z");
  if (packed === null) return null;
  const bytes = Uint8Array.from(atob(packed.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
  const unpacked = await collect(through(bytes, new DecompressionStream("deflate-raw")), most);
  const settings = {};
  for (const [name, letter] of Object.entries(SETTINGS)) settings[name] = words.get(letter) ?? "";
  return { text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(unpacked), settings };
}
