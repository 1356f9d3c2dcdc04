/** How well a search finds the pages that questions name: recall at k, and the mean reciprocal rank. */

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

/** Read a file of questions: one JSON object a line, with `question` and `sourcepage` or `sourcepages`. */
export function questionsOf(text: string): Asked[] {
  const lines = text.split('\n').filter((line) => line.trim())
  if (!lines.length) throw new Error('The file holds no question. Each line is a JSON object with question and sourcepage.')
  if (lines.length > MOST) throw new Error(`The file holds ${lines.length} questions; at most ${MOST} are asked.`)
  return lines.map((line, place) => {
    let read: { question?: unknown; sourcepage?: unknown; sourcepages?: unknown }
    try {
      read = JSON.parse(line) as typeof read
    } catch {
      throw new Error(`Line ${place + 1} is no JSON object.`)
    }
    const pages = Array.isArray(read?.sourcepages) ? read.sourcepages : [read?.sourcepage]
    if (typeof read?.question !== 'string' || !pages.length || !pages.every((each) => typeof each === 'string')) {
      throw new Error(`Line ${place + 1} needs question and sourcepage, as texts.`)
    }
    return { question: read.question, pages: pages as string[] }
  })
}

/** Return the place of the first right page, from 1; 0: it was not found. */
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

/** Return what moved between two lists of results: the places of each in the other, from 1; 0: it is not there. */
export function moves(one: readonly string[], other: readonly string[]): number[] {
  return one.map((id) => other.indexOf(id) + 1)
}
