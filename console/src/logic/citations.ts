/** Citations: `[guide.pdf#page=2]` in a text becomes a number, and the number opens the page. */

// Private-use code points. They are first removed from the text of the model.
const OPEN = '\uE000'
const CLOSE = '\uE001'
const PRIVATE = /[\uE000\uE001]/g
const MARKED = /\uE000(\d+)\uE001/g

export interface Cited {
  /** The text, with a mark in place of each citation. */
  text: string
  /** Names of the sources, in the order of their first citation: the first one has the number 1. */
  names: readonly string[]
}

/**
 * Number the citations of known sources. Other text in brackets stays.
 *
 * `before` are the names that earlier blocks of the text cite. The result is the same array if no name is new.
 */
export function numbered(text: string, known: readonly string[], before: readonly string[] = []): Cited {
  const clean = text.replace(PRIVATE, '')
  const byName = new Set(known)
  let names = before
  const marked = clean.replace(/ ?\[([^[\]\n]{1,512})\](?!\()/g, (whole: string, inside: string) => {
    const name = inside.trim()
    if (!byName.has(name)) return whole
    let place = names.indexOf(name)
    if (place < 0) {
      place = names.length
      names = [...names, name]
    }
    return `${OPEN}${place + 1}${CLOSE}`
  })
  return { text: marked, names }
}

/** Split a text with marks into texts and numbers. */
export function parts(text: string): (string | number)[] {
  const found: (string | number)[] = []
  let end = 0
  for (const match of text.matchAll(MARKED)) {
    if (match.index > end) found.push(text.slice(end, match.index))
    found.push(Number(match[1]))
    end = match.index + match[0].length
  }
  if (end < text.length) found.push(text.slice(end))
  return found
}

/** Put the names back where marks are not replaced, such as in code. */
export function restored(text: string, names: readonly string[]): string {
  return text.replace(MARKED, (_whole, number: string) => `[${names[Number(number) - 1] ?? ''}]`)
}

/** Return a text without a citation at its end whose bracket is still open. */
export function settled(text: string): string {
  const open = text.lastIndexOf('[')
  return open >= 0 && text.length - open < 512 && !text.slice(open).includes(']') ? text.slice(0, open).trimEnd() : text
}

export interface Source {
  file: string
  page: number | null
}

/** Return the file and the page that a citation names. */
export function sourceOf(name: string): Source {
  const match = /^(.*)#page=(\d+)$/.exec(name)
  return match ? { file: match[1] ?? '', page: Number(match[2]) } : { file: name, page: null }
}
