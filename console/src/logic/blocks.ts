/** Splits a growing Markdown text into blocks. Only the last block changes, so the page parses all others once. */

import { numbered, settled } from './citations.ts'

export interface Block {
  /** Markdown, with a placeholder for each citation. */
  text: string
  /** The names of the sources. A placeholder contains the number of a name. */
  names: readonly string[]
}

const LIST_ITEM = /^([-*+]|\d{1,9}[.)])(\s|$)/
const START_OF_LIST_ITEM = /^([-*+]|\d{1,9}[.)]?)$/
const FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)$/
const DEFINITION = /^ {0,3}\[[^\]\n]+\]:/m
/** The last block is shown in steps if it has more characters than this. See `isShown`. */
const LONG = 2000
const STEP = 1 / 20

/**
 * Splits a text into blocks while the text grows.
 *
 * A block ends at a blank line outside of code. It continues if the next line is indented or continues a list. Each
 * character is scanned once. `settled` contains the complete blocks, and `last` the rest of the text.
 */
export class BlockReader {
  settled: Block[] = []
  last: Block | null = null
  /** The sources in the order of their first citation. */
  names: readonly string[] = []

  #known: readonly string[] = []
  #text = ''
  #blockStart = 0
  #lineStart = 0
  #fence = ''
  #afterBlank = false
  #inList = false
  #lastLength = 0

  /** Read the text so far. Start again if it does not continue the previous text, or if the known sources differ. */
  read(text: string, known: readonly string[], complete: boolean): void {
    if (!text.startsWith(this.#text) || !same(known, this.#known)) this.#reset(known)
    this.#text = text
    this.#scan()
    if (complete && DEFINITION.test(text)) {
      // A definition of a link is valid in all blocks, so the whole text becomes one block.
      this.#reset(known)
      this.#text = text
    }
    const rest = text.slice(this.#blockStart)
    if (complete || isShown(rest.length, this.#lastLength)) this.#showLast(complete ? rest : settled(rest))
  }

  #reset(known: readonly string[]): void {
    this.settled = []
    this.last = null
    this.names = []
    this.#known = known
    this.#text = ''
    this.#blockStart = this.#lineStart = this.#lastLength = 0
    this.#fence = ''
    this.#afterBlank = this.#inList = false
  }

  #scan(): void {
    for (;;) {
      const end = this.#text.indexOf('\n', this.#lineStart)
      const isComplete = end >= 0
      const line = this.#text.slice(this.#lineStart, isComplete ? end : undefined)
      if (this.#afterBlank && line.trim() !== '') {
        const continues = this.#continues(line, isComplete)
        if (continues === undefined) return
        if (!continues) this.#settle()
        this.#afterBlank = false
      }
      if (!isComplete) return
      this.#endLine(line)
      this.#lineStart = end + 1
    }
  }

  /** Return whether a line after a blank line belongs to the same block. Undefined if that depends on the rest of the line. */
  #continues(line: string, isComplete: boolean): boolean | undefined {
    if (/^\s/.test(line)) return true
    if (!this.#inList) return false
    if (!isComplete && START_OF_LIST_ITEM.test(line)) return undefined
    return LIST_ITEM.test(line)
  }

  #settle(): void {
    this.settled.push(this.#numbered(this.#text.slice(this.#blockStart, this.#lineStart)))
    this.#blockStart = this.#lineStart
    this.#inList = false
    this.#lastLength = 0
    this.last = null
  }

  #endLine(line: string): void {
    const fence = FENCE.exec(line)
    if (this.#fence) {
      const closing = fence?.[1] ?? ''
      if (closing.startsWith(this.#fence) && fence?.[2]?.trim() === '') this.#fence = ''
      return
    }
    if (fence) this.#fence = fence[1] ?? ''
    else if (LIST_ITEM.test(line)) this.#inList = true
    this.#afterBlank = line.trim() === ''
  }

  #showLast(rest: string): void {
    this.#lastLength = rest.length
    this.last = rest.trim() ? this.#numbered(rest) : null
  }

  #numbered(text: string): Block {
    const block = numbered(text, this.#known, this.names)
    this.names = block.names
    return block
  }
}

/**
 * Return whether the last block is shown again after it has grown.
 *
 * A short block is shown again with each piece of text. A long block, such as a list of hundreds of items, must first
 * grow by a part of its length. So the number of parsed characters remains proportional to the length of the text.
 */
function isShown(length: number, shown: number): boolean {
  return length - shown >= (length - LONG) * STEP
}

function same(one: readonly string[], other: readonly string[]): boolean {
  return one === other || (one.length === other.length && one.every((each, place) => each === other[place]))
}
