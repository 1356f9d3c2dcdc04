/** Asks the gateway questions and streams the answers. */

import { ended, EMPTY_ANSWER, withLine, type Answer } from '../logic/answer.ts'
import { linesOf } from '../logic/lines.ts'
import { send } from './http.ts'
import type { ChatMessage } from './types.ts'

export interface ChatSettings {
  index: string
  model: string
  assistant: string
  mode: string
  top: number
  rewrite: boolean
  rerank: boolean
  followUps: boolean
}

export const DEFAULT_SETTINGS: ChatSettings = {
  index: '',
  model: '',
  assistant: '',
  mode: 'hybrid',
  top: 5,
  rewrite: true,
  rerank: false,
  followUps: true,
}

const PATH = '2026-04-10/chat/stream'

/** Ask a question and report each state of the answer. The signal stops the answer. */
export async function ask(
  messages: readonly ChatMessage[],
  settings: ChatSettings,
  sessionState: string | null,
  report: (answer: Answer) => void,
  signal: AbortSignal,
): Promise<Answer> {
  let answer = EMPTY_ANSWER
  report(answer)
  try {
    const response = await send(PATH, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ messages, session_state: sessionState, context: { overrides: overrides(settings) } }),
      signal,
    })
    answer = { ...answer, traceId: response.headers.get('x-trace-id') ?? '' }
    if (response.body) {
      for await (const line of linesOf(response.body)) {
        answer = withLine(answer, line)
        report(answer)
        if (answer.state === 'failed') break
      }
    }
  } catch (error) {
    if (signal.aborted) answer = { ...answer, state: 'stopped' }
    else answer = { ...answer, state: 'failed', error: failureOf(error, answer) }
  }
  answer = ended(answer)
  report(answer)
  return answer
}

function overrides(settings: ChatSettings): Record<string, unknown> {
  return {
    ...(settings.index ? { index: settings.index } : {}),
    ...(settings.assistant || settings.model ? { model: settings.assistant || settings.model } : {}),
    retrieval_mode: settings.mode,
    top: settings.top,
    query_rewriting: settings.rewrite,
    semantic_ranker: settings.rerank,
    suggest_followup_questions: settings.followUps,
  }
}

function failureOf(error: unknown, answer: Answer): string {
  if (answer.state === 'streaming') return 'The connection broke before the answer was complete. Ask again.'
  return error instanceof Error ? error.message : String(error)
}
