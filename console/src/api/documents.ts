/** Calls that upload, read and change documents. */

import { ApiError, get, send, submit } from './http.ts'
import { namesOf } from '../logic/uploads.ts'
import { follow } from './jobs.ts'
import type { DocumentInfo, DocumentPassage, Job } from './types.ts'

const MAX_PAGE = 100

/** The labels of uploaded documents: comma-separated names. */
export interface Labels {
  oids: string
  groups: string
  category: string
}

export const NO_LABELS: Labels = { oids: '', groups: '', category: '' }

/** Upload documents. Each source is a file, or a URL that the platform fetches. Return the jobs. */
export async function upload(index: string, sources: readonly (File | string)[], labels: Labels): Promise<Job[]> {
  const form = new FormData()
  form.set('index', index)
  if (labels.category) form.set('category', labels.category)
  for (const each of namesOf(labels.oids)) form.append('oids', each)
  for (const each of namesOf(labels.groups)) form.append('groups', each)
  for (const each of sources) {
    if (typeof each === 'string') form.append('url', each)
    else form.append('file', each, each.name)
  }
  const { jobs } = (await (await send('documents', { method: 'POST', body: form })).json()) as { jobs: Job[] }
  return jobs
}

/** Return the indexed version of a document, or null. */
export async function stored(index: string, id: string): Promise<DocumentInfo | null> {
  try {
    return (await get<{ document: DocumentInfo }>(below(index, id, 'passages?limit=1'))).document
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null
    throw error
  }
}

interface Page {
  passages: DocumentPassage[]
  total: number
}

/** Return the address of a resource below a document. */
function below(index: string, id: string, what: string): string {
  return `indexes/${encodeURIComponent(index)}/documents/${encodeURIComponent(id)}/${what}`
}

/** Return the first `count` passages of a document, and the number of all its passages. */
export async function passagesOf(index: string, id: string, count: number): Promise<Page> {
  const passages: DocumentPassage[] = []
  for (;;) {
    const limit = Math.min(MAX_PAGE, count - passages.length)
    const page = await get<Page>(below(index, id, `passages?offset=${passages.length}&limit=${limit}`))
    passages.push(...page.passages)
    if (passages.length >= count || !page.passages.length) return { passages, total: page.total }
  }
}

/** Change the access list of a document. Return the job after it has ended. */
export async function changeAccess(index: string, id: string, oids: string[], groups: string[]): Promise<Job> {
  const job = await submit<Job>(below(index, id, 'access'), { oids, groups }, 'PUT')
  let last = job
  await follow(job, (now) => (last = now))
  if (last.state === 'failed') throw new Error(last.error?.message ?? 'The access list did not change.')
  return last
}
