/** Find passages in a text, although a passage may have other white space and punctuation than the original. */

export interface Piece {
  text: string
  marked: boolean
}

interface Span {
  start: number
  end: number
}

const LEAST = 12

/** Return the letters and digits of a text in lower case, each with its position. */
function skeleton(text: string): { letters: string; places: number[] } {
  const letters: string[] = []
  const places: number[] = []
  for (let place = 0; place < text.length; place += 1) {
    const sign = text[place] ?? ''
    if (/[\p{L}\p{N}]/u.test(sign)) {
      letters.push(sign.toLowerCase().slice(0, 1))
      places.push(place)
    }
  }
  return { letters: letters.join(''), places }
}

/** Return the spans of a text that are lines of passages. */
export function spansOf(text: string, passages: readonly string[]): Span[] {
  const whole = skeleton(text)
  const spans: Span[] = []
  for (const passage of passages) {
    const asked = [passage, ...passage.split('\n')]
    for (const part of asked) {
      const wanted = skeleton(part).letters
      if (wanted.length < LEAST) continue
      const found = whole.letters.indexOf(wanted)
      if (found < 0) continue
      spans.push({ start: whole.places[found] ?? 0, end: (whole.places[found + wanted.length - 1] ?? 0) + 1 })
      if (part === passage) break
    }
  }
  return merged(spans)
}

function merged(spans: Span[]): Span[] {
  const kept: Span[] = []
  for (const span of spans.toSorted((one, other) => one.start - other.start)) {
    const last = kept.at(-1)
    if (last && span.start <= last.end) last.end = Math.max(last.end, span.end)
    else kept.push({ ...span })
  }
  return kept
}

/** Return a text in pieces, with the pieces of passages marked. */
export function highlighted(text: string, passages: readonly string[]): Piece[] {
  const pieces: Piece[] = []
  let end = 0
  for (const span of spansOf(text, passages)) {
    if (span.start > end) pieces.push({ text: text.slice(end, span.start), marked: false })
    pieces.push({ text: text.slice(span.start, span.end), marked: true })
    end = span.end
  }
  if (end < text.length) pieces.push({ text: text.slice(end), marked: false })
  return pieces
}
