/** The settings of a search in the search lab, and the profile with these settings. */

import type { Piece } from './highlight.ts'

/** The weighting of a search; null: the setting of the index. */
export interface Tuning {
  fusion: string | null
  dense_weight: number | null
  expand: boolean | null
}

export interface Side extends Tuning {
  mode: 'hybrid' | 'vectors' | 'text'
  rerank: boolean
  top: number
  /** The metadata filter as the user typed it: `team=deck, year=2024`. */
  filter: string
}

/** Return the body of a search. */
export function searchOf(index: string, query: string, side: Side): Record<string, unknown> {
  return {
    index_name: index,
    query,
    retrieval_mode: side.mode,
    semantic_ranker: side.rerank,
    max_node_count: side.top,
    metadata_filter: filterOf(side.filter),
    ...(side.mode === 'hybrid' ? { fusion: side.fusion, dense_weight: side.dense_weight, expand: side.expand } : {}),
  }
}

/** Parse metadata such as `team=deck, year=2024`. Numbers, true and false become JSON numbers and booleans. */
export function filterOf(text: string): Record<string, string | number | boolean> {
  const found: Record<string, string | number | boolean> = {}
  for (const part of text.split(',')) {
    const separator = part.indexOf('=')
    const name = part.slice(0, separator).trim()
    if (separator > 0 && name) found[name] = valueOf(part.slice(separator + 1).trim())
  }
  return found
}

/** Return the first part of a filter that is not `name=value`, or an empty text. */
export function wrongFilter(text: string): string {
  return text.split(',').map((part) => part.trim()).find((part) => part && !/^[^=]*[^=\s][^=]*=/.test(part)) ?? ''
}

function valueOf(text: string): string | number | boolean {
  if (text === 'true' || text === 'false') return text === 'true'
  return /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text.replace(/^"(.*)"$/, '$1')
}

/** Return the YAML of a front end profile with an index and these settings (docs/retrieval.md). */
export function yamlOf(index: string, tuning: Tuning): string {
  const lines = ['frontends:', '  - name: help', '    mount: help', `    index: ${JSON.stringify(index)}`]
  const settings = Object.entries(tuning).filter(([, value]) => value !== null)
  if (settings.length) lines.push('    retrieval:', ...settings.map(([name, value]) => `      ${name}: ${String(value)}`))
  return `${lines.join('\n')}\n`
}

/** Split a text into pieces, and mark the words that begin like a word of the query. */
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
