/** Where an answer's time went: bars on one axis of time. */

import type { Step } from '../api/types.ts'

export interface Bar {
  name: string
  label: string
  depth: number
  start: number
  duration: number
}

const LABELS: Record<string, string> = {
  'check input': 'Check the question',
  'report on input': 'Report on the question',
  'check context': 'Check the passages',
  rewrite: 'Write the search query',
  retrieve: 'Search',
  embed: 'Embed the query',
  dense: 'By meaning',
  sparse: 'By words',
  fuse: 'Fuse the scores',
  expand: 'Search for further words',
  rerank: 'Rerank',
  budget: 'Choose what fits',
  'first token': 'First token',
  generate: 'Write the answer',
}

/** Steps that begin with the request, beside each other. */
const AT_ONCE = new Set(['check input', 'report on input', 'rewrite', 'retrieve'])
/** Steps that begin where another one does. */
const WITH_GENERATION = new Set(['first token', 'generate'])

/**
 * Return the bars of an answer's steps.
 *
 * The API tells each step's time, and the order of the steps. Checks of the question run beside the search; what
 * follows the search comes one after the other; the first token is a part of the writing.
 */
export function waterfall(steps: readonly Step[]): Bar[] {
  const bars: Bar[] = []
  let now = 0
  let searched = 0
  for (const step of steps) {
    let start = now
    if (step.name === 'retrieve') start = searched
    else if (AT_ONCE.has(step.name)) start = 0
    bars.push(bar(step, 0, start))
    let within = start
    for (const inner of step.steps ?? []) {
      bars.push(bar(inner, 1, within))
      within += inner.duration_ms
    }
    const end = start + step.duration_ms
    if (step.name === 'rewrite') searched = end
    // Detectors that only report do not keep the rest waiting.
    if (step.name !== 'report on input' && !WITH_GENERATION.has(step.name)) now = Math.max(now, end)
  }
  return bars
}

/** Return where the last bar ends. */
export function total(bars: readonly Bar[]): number {
  return Math.max(0, ...bars.map((each) => each.start + each.duration))
}

function bar(step: Step, depth: number, start: number): Bar {
  return { name: step.name, label: LABELS[step.name] ?? step.name, depth, start, duration: step.duration_ms }
}
