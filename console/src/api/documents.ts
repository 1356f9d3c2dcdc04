/** One document of an index. */

import { get, submit } from './http.ts'
import { follow } from './jobs.ts'
import type { DocumentPassage, Job } from './types.ts'

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

/** Change who may see a document; return the job once it is over. */
export async function changeAccess(index: string, id: string, oids: string[], groups: string[]): Promise<Job> {
  const job = await submit<Job>(below(index, id, 'access'), { oids, groups }, 'PUT')
  let last = job
  await follow(job, (now) => (last = now))
  if (last.state === 'failed') throw new Error(last.error?.message ?? 'The access list did not change.')
  return last
}
