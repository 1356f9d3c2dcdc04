/** One document of an index. */

import { get } from './http.ts'
import type { DocumentPassage } from './types.ts'

const MOST = 100

interface Page {
  passages: DocumentPassage[]
  total: number
}

/** Return the address of what is below a document. */
function below(index: string, id: string, what: string): string {
  return `indexes/${encodeURIComponent(index)}/documents/${encodeURIComponent(id)}/${what}`
}

/** Return the first passages of a document, as many as are wanted, and how many there are. */
export async function passagesOf(index: string, id: string, wanted: number): Promise<Page> {
  const passages: DocumentPassage[] = []
  for (;;) {
    const limit = Math.min(MOST, wanted - passages.length)
    const page = await get<Page>(below(index, id, `passages?offset=${passages.length}&limit=${limit}`))
    passages.push(...page.passages)
    if (passages.length >= wanted || !page.passages.length) return { passages, total: page.total }
  }
}
