/** Computes the bars of an answer's steps on one time axis. */

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
  expand: 'Expand the query',
  rerank: 'Rerank',
  budget: 'Select the passages that fit',
  'first token': 'First token',
  'find index': 'Find the index',
  'load pictures': 'Load pictures of pages',
  generate: 'Write the answer',
}

/**
 * Return the bars of an answer's steps.
 *
 * The API reports the start of each step. It reports only durations for the parts of a step, so the bars of the parts
 * follow one another. The same applies to the steps of an answer that was stored without start times.
 */
export function waterfall(steps: readonly Step[]): Bar[] {
  const bars: Bar[] = []
  let end = 0
  for (const step of steps) {
    const start = step.start_ms ?? end
    bars.push(bar(step, 0, start))
    let within = start
    for (const inner of step.steps ?? []) {
      bars.push(bar(inner, 1, within))
      within += inner.duration_ms
    }
    end = Math.max(end, start + step.duration_ms)
  }
  return bars
}

/** Return a note about the start times of the bars, or an empty text. */
export function startsNote(steps: readonly Step[]): string {
  if (steps.some((each) => each.start_ms === undefined)) return 'The start times of this answer were not stored. Its steps are drawn one after the other.'
  const inner = steps.filter((each) => each.steps?.length).map((each) => LABELS[each.name] ?? each.name)
  return inner.length ? `Start times are measured. The parts of ${inner.map((each) => `“${each}”`).join(', ')} are drawn one after the other, because only their durations are measured.` : ''
}

/** Return the end of the last bar in milliseconds. */
export function total(bars: readonly Bar[]): number {
  return Math.max(0, ...bars.map((each) => each.start + each.duration))
}

function bar(step: Step, depth: number, start: number): Bar {
  return { name: step.name, label: LABELS[step.name] ?? step.name, depth, start, duration: step.duration_ms }
}
