/** Quality of a search for questions with known pages: recall at k, and the mean reciprocal rank. */

export interface Asked {
  question: string
  pages: string[]
}

export interface Measured {
  questions: number
  recall: Record<number, number>
  mrr: number
}

const DEPTHS = [1, 3, 5, 10]
const MOST = 1000

/** Parse a file of questions: one JSON object per line, with `question` and `sourcepage` or `sourcepages`. */
export function questionsOf(text: string): Asked[] {
  const lines = text.split('\n').filter((line) => line.trim())
  if (!lines.length) throw new Error('The file has no question. Each line must be a JSON object with question and sourcepage.')
  if (lines.length > MOST) throw new Error(`The file has ${lines.length} questions; at most ${MOST} are allowed.`)
  return lines.map((line, place) => {
    let read: { question?: unknown; sourcepage?: unknown; sourcepages?: unknown }
    try {
      read = JSON.parse(line) as typeof read
    } catch {
      throw new Error(`Line ${place + 1} is not a JSON object.`)
    }
    const pages = Array.isArray(read?.sourcepages) ? read.sourcepages : [read?.sourcepage]
    if (typeof read?.question !== 'string' || !pages.length || !pages.every((each) => typeof each === 'string')) {
      throw new Error(`Line ${place + 1} needs question and sourcepage, as texts.`)
    }
    return { question: read.question, pages: pages as string[] }
  })
}

/** Return the rank of the first right page, from 1; 0 if no right page was found. */
export function rankOf(asked: Asked, found: readonly string[]): number {
  return found.findIndex((page) => asked.pages.includes(page)) + 1
}

/** Return the measures of ranks. */
export function measured(ranks: readonly number[]): Measured {
  const recall: Record<number, number> = {}
  const share = (hits: number) => (ranks.length ? hits / ranks.length : 0)
  for (const depth of DEPTHS) recall[depth] = share(ranks.filter((rank) => rank > 0 && rank <= depth).length)
  return { questions: ranks.length, recall, mrr: share(ranks.reduce((sum, rank) => sum + (rank ? 1 / rank : 0), 0)) }
}

/** Return the rank in the other list for each result of the first list, from 1; 0 if the other list lacks the result. */
export function moves(one: readonly string[], other: readonly string[]): number[] {
  return one.map((id) => other.indexOf(id) + 1)
}
