/** Conversations of the server's history. */

import { NOTHING, type Answer } from './answer.ts'
import type { ChatContext } from '../api/types.ts'

export interface Kept {
  id: string
  answers: [string, unknown][]
}

interface KeptAnswer {
  message?: { content?: unknown }
  output_text?: unknown
  context?: ChatContext
}

/** Return the turns of a stored conversation of any client. */
export function turnsOf(kept: Kept): { question: string; answer: Answer }[] {
  return kept.answers.map(([question, said]) => {
    const answer = (said && typeof said === 'object' ? said : {}) as KeptAnswer
    const text = typeof said === 'string' ? said : (answer.message?.content ?? answer.output_text ?? '')
    return {
      question,
      answer: { ...NOTHING, state: 'done', text: String(text), context: answer.context ?? {}, sessionState: kept.id },
    }
  })
}
