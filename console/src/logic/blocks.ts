/** A growing Markdown text as blocks. Only the last block changes, so that the page parses each other block once. */

import { numbered, settled } from './citations.ts'

export interface Block {
  /** Markdown, with a mark in place of each citation. */
  text: string
  /** The names of the sources that the marks number. */
  names: readonly string[]
}

const LIST_ITEM = /^([-*+]|\d{1,9}[.)])(\s|$)/
const START_OF_LIST_ITEM = /^([-*+]|\d{1,9}[.)]?)$/
const FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)$/
const DEFINITION = /^ {0,3}\[[^\]\n]+\]:/m
/** A last block that is longer than this many characters is shown in steps, see `shows`. */
const LONG = 2000
const STEP = 1 / 20

/**
 * Splits a text into blocks while the text grows.
 *
 * A block ends at a blank line outside of code, unless the next line continues a list or is indented. Each character
 * is scanned once. `settled` holds the complete blocks, and `last` the rest of the text.
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

  /** Read a text that continues the previous one. Another text, or other known sources, start again. */
  read(text: string, known: readonly string[], complete: boolean): void {
    if (!text.startsWith(this.#text) || !same(known, this.#known)) this.#reset(known)
    this.#text = text
    this.#scan()
    if (complete && DEFINITION.test(text)) {
      // A definition of a link is valid for all blocks.
      this.#reset(known)
      this.#text = text
    }
    const rest = text.slice(this.#blockStart)
    if (complete || shows(rest.length, this.#lastLength)) this.#showLast(complete ? rest : settled(rest))
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
      const whole = end >= 0
      const line = this.#text.slice(this.#lineStart, whole ? end : undefined)
      if (this.#afterBlank && line.trim() !== '') {
        const continues = this.#continues(line, whole)
        if (continues === undefined) return
        if (!continues) this.#settle()
        this.#afterBlank = false
      }
      if (!whole) return
      this.#endLine(line)
      this.#lineStart = end + 1
    }
  }

  /** Return whether a line after a blank line belongs to the same block; undefined while the line is too short to tell. */
  #continues(line: string, whole: boolean): boolean | undefined {
    if (/^\s/.test(line)) return true
    if (!this.#inList) return false
    if (!whole && START_OF_LIST_ITEM.test(line)) return undefined
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
      const mark = fence?.[1] ?? ''
      if (mark.startsWith(this.#fence) && fence?.[2]?.trim() === '') this.#fence = ''
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
 * A short block is shown with each piece. A long one, such as a list of hundreds of items, has to grow by a part of
 * its length first: the characters that are parsed in total stay proportional to the text.
 */
function shows(length: number, shown: number): boolean {
  return length - shown >= (length - LONG) * STEP
}

function same(one: readonly string[], other: readonly string[]): boolean {
  return one === other || (one.length === other.length && one.every((each, place) => each === other[place]))
}
