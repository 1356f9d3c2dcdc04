/** Converts conversations of the server's history. */

import { EMPTY_ANSWER, type Answer } from './answer.ts'
import type { ChatContext } from '../api/types.ts'

export interface StoredConversation {
  id: string
  answers: [string, unknown][]
}

interface StoredAnswer {
  message?: { content?: unknown }
  output_text?: unknown
  context?: ChatContext
}

/** Return the turns of a stored conversation of any client. */
export function turnsOf(stored: StoredConversation): { question: string; answer: Answer }[] {
  return stored.answers.map(([question, value]) => {
    const answer = (value && typeof value === 'object' ? value : {}) as StoredAnswer
    const text = typeof value === 'string' ? value : (answer.message?.content ?? answer.output_text ?? '')
    return {
      question,
      answer: { ...EMPTY_ANSWER, state: 'done', text: String(text), context: answer.context ?? {}, sessionState: stored.id },
    }
  })
}
