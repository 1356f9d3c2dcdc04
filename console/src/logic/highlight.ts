/** Finds passages in a text. White space and punctuation may differ between the passage and the text. */

export interface Piece {
  text: string
  marked: boolean
}

interface Span {
  start: number
  end: number
}

const MIN_LETTERS = 12

/** Return the letters and digits of a text in lower case, each with its position. */
function skeleton(text: string): { letters: string; positions: number[] } {
  const letters: string[] = []
  const positions: number[] = []
  for (let position = 0; position < text.length; position += 1) {
    const character = text[position] ?? ''
    if (/[\p{L}\p{N}]/u.test(character)) {
      letters.push(character.toLowerCase().slice(0, 1))
      positions.push(position)
    }
  }
  return { letters: letters.join(''), positions }
}

/** Return the spans of a text that match passages or their lines. */
export function spansOf(text: string, passages: readonly string[]): Span[] {
  const whole = skeleton(text)
  const spans: Span[] = []
  for (const passage of passages) {
    const candidates = [passage, ...passage.split('\n')]
    for (const part of candidates) {
      const searched = skeleton(part).letters
      if (searched.length < MIN_LETTERS) continue
      const start = whole.letters.indexOf(searched)
      if (start < 0) continue
      spans.push({ start: whole.positions[start] ?? 0, end: (whole.positions[start + searched.length - 1] ?? 0) + 1 })
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

/** Split a text into pieces, and mark the pieces that belong to passages. */
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
