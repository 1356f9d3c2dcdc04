/** Measures the quality of a search with questions whose pages are known: recall at k and mean reciprocal rank. */

export interface KnownQuestion {
  question: string
  pages: string[]
}

export interface Measured {
  questions: number
  recall: Record<number, number>
  mrr: number
}

const DEPTHS = [1, 3, 5, 10]
const MAX_QUESTIONS = 1000

/** Parse a file of questions: one JSON object per line, with `question` and `sourcepage` or `sourcepages`. */
export function questionsOf(text: string): KnownQuestion[] {
  const lines = text.split('\n').filter((line) => line.trim())
  if (!lines.length) throw new Error('The file has no question. Each line must be a JSON object with question and sourcepage.')
  if (lines.length > MAX_QUESTIONS) throw new Error(`The file has ${lines.length} questions; at most ${MAX_QUESTIONS} are allowed.`)
  return lines.map((line, position) => {
    let parsed: { question?: unknown; sourcepage?: unknown; sourcepages?: unknown }
    try {
      parsed = JSON.parse(line) as typeof parsed
    } catch {
      throw new Error(`Line ${position + 1} is not a JSON object.`)
    }
    const pages = Array.isArray(parsed?.sourcepages) ? parsed.sourcepages : [parsed?.sourcepage]
    if (typeof parsed?.question !== 'string' || !pages.length || !pages.every((each) => typeof each === 'string')) {
      throw new Error(`Line ${position + 1} must have question and sourcepage as texts.`)
    }
    return { question: parsed.question, pages: pages as string[] }
  })
}

/** Return the rank of the first correct page, from 1. Return 0 if no correct page was found. */
export function rankOf(question: KnownQuestion, found: readonly string[]): number {
  return found.findIndex((page) => question.pages.includes(page)) + 1
}

/** Return recall and mean reciprocal rank of some ranks. */
export function measured(ranks: readonly number[]): Measured {
  const recall: Record<number, number> = {}
  const share = (hits: number) => (ranks.length ? hits / ranks.length : 0)
  for (const depth of DEPTHS) recall[depth] = share(ranks.filter((rank) => rank > 0 && rank <= depth).length)
  return { questions: ranks.length, recall, mrr: share(ranks.reduce((sum, rank) => sum + (rank ? 1 / rank : 0), 0)) }
}

/** Return for each result of a list its rank in the other list, from 1, or 0 if the other list lacks it. */
export function moves(one: readonly string[], other: readonly string[]): number[] {
  return one.map((id) => other.indexOf(id) + 1)
}
