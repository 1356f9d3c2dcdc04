/** The search lab: what two searches differ in, and what is copied from it. */

import type { Piece } from './highlight.ts'

export interface Side {
  mode: 'hybrid' | 'vectors' | 'text'
  rerank: boolean
  top: number
}

export interface Tuning {
  fusion: string | null
  dense_weight: number | null
  expand: boolean | null
}

/** Return a front end profile that searches an index so (docs/retrieval.md). */
export function yamlOf(index: string, tuning: Tuning): string {
  const lines = ['frontends:', '  - name: help', '    mount: help', `    index: ${JSON.stringify(index)}`]
  const said = Object.entries(tuning).filter(([, value]) => value !== null)
  if (said.length) lines.push('    retrieval:', ...said.map(([name, value]) => `      ${name}: ${String(value)}`))
  return `${lines.join('\n')}\n`
}

/** Return a text in pieces, those marked that begin like a word of the query. */
export function wordsOf(text: string, query: string): Piece[] {
  const stems = [...query.toLowerCase().matchAll(/[\p{L}\p{N}]{3,}/gu)].map(([word]) => (word.length > 5 ? word.slice(0, -2) : word))
  if (!stems.length) return [{ text, marked: false }]
  const pieces: Piece[] = []
  let end = 0
  for (const match of text.matchAll(/[\p{L}\p{N}]+/gu)) {
    const word = match[0].toLowerCase()
    if (!stems.some((stem) => word.startsWith(stem))) continue
    if (match.index > end) pieces.push({ text: text.slice(end, match.index), marked: false })
    pieces.push({ text: match[0], marked: true })
    end = match.index + match[0].length
  }
  if (end < text.length) pieces.push({ text: text.slice(end), marked: false })
  return pieces
}
