/** The state of an answer while its lines arrive. */

import type { ChatContext, Detections, Passage, Step, Thought, Usage } from '../api/types.ts'

export interface Answer {
  text: string
  state: 'waiting' | 'streaming' | 'done' | 'stopped' | 'failed'
  error: string
  context: ChatContext
  sessionState: string | null
  traceId: string
}

export const EMPTY_ANSWER: Answer = {
  text: '',
  state: 'waiting',
  error: '',
  context: {},
  sessionState: null,
  traceId: '',
}

interface Line {
  type?: string
  delta?: unknown
  context?: ChatContext
  session_state?: unknown
  error?: unknown
}

/** Add a line of the stream to an answer. Return the new answer. */
export function withLine(answer: Answer, line: string): Answer {
  let parsed: Line
  try {
    parsed = JSON.parse(line) as Line
  } catch {
    return { ...answer, state: 'failed', error: 'The gateway sent a line that is not JSON. Ask again.' }
  }
  if (parsed.error !== undefined) {
    return { ...answer, state: 'failed', error: typeof parsed.error === 'string' ? parsed.error : JSON.stringify(parsed.error) }
  }
  const next: Answer = { ...answer, state: 'streaming' }
  if (typeof parsed.delta === 'string') next.text = answer.text + parsed.delta
  if (parsed.context) next.context = { ...answer.context, ...parsed.context }
  if (typeof parsed.session_state === 'string') next.sessionState = parsed.session_state
  return next
}

/** Return an answer after the end of its stream. Without the thought `Answer`, the answer is incomplete. */
export function ended(answer: Answer): Answer {
  if (answer.state === 'failed' || answer.state === 'stopped') return answer
  if (thought(answer.context, 'Answer')) return { ...answer, state: 'done' }
  return { ...answer, state: 'failed', error: 'The connection broke before the answer was complete. Ask again.' }
}

/** Return the thought with this title. */
export function thought(context: ChatContext, title: string): Thought | undefined {
  return context.thoughts?.find((each) => each.title === title)
}

/** Return the passages for the answer. */
export function passagesOf(context: ChatContext): Passage[] {
  const found = thought(context, 'Results')?.description
  return Array.isArray(found) ? (found as Passage[]) : []
}

/** Return the query that the search used. */
export function queryOf(context: ChatContext): string {
  const description = thought(context, 'Generated search query')?.description
  return typeof description === 'string' ? description : ''
}

/** Return the messages that the model received. */
export function promptOf(context: ChatContext): { role: string; content: string }[] {
  const description = thought(context, 'Prompt')?.description
  if (!Array.isArray(description)) return []
  return description.map((each: unknown) =>
    each && typeof each === 'object'
      ? { role: String((each as { role?: unknown }).role ?? ''), content: String((each as { content?: unknown }).content ?? '') }
      : { role: '', content: String(each) },
  )
}

/** Return the steps of the answer. */
export function stepsOf(context: ChatContext): Step[] {
  return thought(context, 'Answer')?.props?.steps ?? []
}

/** Return the tokens of the answer and those of the search query. */
export function usageOf(context: ChatContext): { answer: Usage | null; query: Usage | null } {
  return {
    answer: thought(context, 'Answer')?.props?.token_usage ?? null,
    query: thought(context, 'Generated search query')?.props?.token_usage ?? null,
  }
}

/** Return the gateway's notes about the answer, such as options that the gateway did not apply. */
export function notesOf(context: ChatContext): string[] {
  return (context.thoughts ?? []).flatMap((each) => each.props?.notes ?? [])
}

export interface ListedFinding {
  where: 'question' | 'passages' | 'answer'
  name: string
  detector: string
  start: number
  end: number
  text: string
  score: number
}

/** Return all findings of the detectors, in the order in which texts pass them. */
export function findingsOf(detections: Detections | undefined): ListedFinding[] {
  if (!detections) return []
  const listed: ListedFinding[] = []
  const checked = [['question', detections.input], ['passages', detections.context], ['answer', detections.output]] as const
  for (const [where, groups] of checked) {
    for (const group of groups ?? []) {
      for (const each of group.results ?? []) {
        listed.push({
          where,
          name: each.detection || each.detection_type,
          detector: each.detector_id,
          start: each.start,
          end: each.end,
          text: each.text,
          score: each.score,
        })
      }
    }
  }
  return listed
}
