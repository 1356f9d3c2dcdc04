/** Replaces citations such as `[guide.pdf#page=2]` with placeholders, which the page shows as numbers. */

// Private-use code points enclose a placeholder. They are removed from the model's text first.
const OPEN = '\uE000'
const CLOSE = '\uE001'
const PRIVATE = /[\uE000\uE001]/g
const PLACEHOLDER = /\uE000(\d+)\uE001/g

export interface Cited {
  /** The text, with a placeholder for each citation. */
  text: string
  /** Names of the sources in the order of their first citation. The first name has the number 1. */
  names: readonly string[]
}

/**
 * Replace the citations of known sources with placeholders. Other text in brackets does not change.
 *
 * `before` has the names that earlier blocks of the text cite. `names` is the same array if no name is new.
 */
export function numbered(text: string, known: readonly string[], before: readonly string[] = []): Cited {
  const clean = text.replace(PRIVATE, '')
  const byName = new Set(known)
  let names = before
  const replaced = clean.replace(/ ?\[([^[\]\n]{1,512})\](?!\()/g, (citation: string, inside: string) => {
    const name = inside.trim()
    if (!byName.has(name)) return citation
    let position = names.indexOf(name)
    if (position < 0) {
      position = names.length
      names = [...names, name]
    }
    return `${OPEN}${position + 1}${CLOSE}`
  })
  return { text: replaced, names }
}

/** Split a text with placeholders into texts and numbers. */
export function parts(text: string): (string | number)[] {
  const found: (string | number)[] = []
  let end = 0
  for (const match of text.matchAll(PLACEHOLDER)) {
    if (match.index > end) found.push(text.slice(end, match.index))
    found.push(Number(match[1]))
    end = match.index + match[0].length
  }
  if (end < text.length) found.push(text.slice(end))
  return found
}

/** Replace placeholders with the original citations, for text that shows no numbers, such as code. */
export function restored(text: string, names: readonly string[]): string {
  return text.replace(PLACEHOLDER, (_whole, number: string) => `[${names[Number(number) - 1] ?? ''}]`)
}

/** Return a text without an incomplete citation at its end. */
export function settled(text: string): string {
  const open = text.lastIndexOf('[')
  return open >= 0 && text.length - open < 512 && !text.slice(open).includes(']') ? text.slice(0, open).trimEnd() : text
}

export interface Source {
  file: string
  page: number | null
}

/** Return the file and the page of a citation. */
export function sourceOf(name: string): Source {
  const match = /^(.*)#page=(\d+)$/.exec(name)
  return match ? { file: match[1] ?? '', page: Number(match[2]) } : { file: name, page: null }
}

/**
 * Return the passages of a cited file. The citation has the name as `sourcepage` has it, in which characters such as
 * `#` and `?` are encoded; `sourcefile` is the name as it was uploaded.
 */
export function passagesOfFile<P extends { sourcepage: string }>(passages: readonly P[], file: string): P[] {
  return passages.filter((each) => sourceOf(each.sourcepage).file === file)
}
