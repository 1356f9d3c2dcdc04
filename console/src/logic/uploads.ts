/** Uploads, with messages for the user about the state of each file. */

import type { Job } from '../api/types.ts'

export interface Upload {
  name: string
  size: number
  state: 'sending' | 'waiting' | 'reading' | 'storing' | 'done' | 'partly' | 'unchanged' | 'failed' | 'cancelled'
  percent: number
  reason: string
  job: string
  /** The file is unreadable, so the user must upload another version. */
  needsFile: boolean
  /** The gateway did not accept the file, but may accept it later. */
  sendsAgain: boolean
}

/** Return an upload that is being sent. */
export function sending(name: string, size: number): Upload {
  return { name, size, state: 'sending', percent: 0, reason: '', job: '', needsFile: false, sendsAgain: false }
}

/** Return an upload with the state of its job. */
export function withJob(upload: Upload, job: Job): Upload {
  const next = { ...upload, job: job.id, percent: job.percent }
  switch (job.state) {
    case 'queued':
      return { ...next, state: 'waiting', reason: '' }
    case 'parsing':
      return { ...next, state: 'reading', reason: '' }
    case 'indexing':
      return { ...next, state: 'storing', reason: '' }
    case 'succeeded':
      return job.warning_count > 0
        ? { ...next, state: 'partly', percent: 100, reason: warningsOf(job) }
        : { ...next, state: 'done', percent: 100, reason: '' }
    case 'unchanged':
      return { ...next, state: 'unchanged', percent: 100, reason: 'The index already has this document with the same content.' }
    case 'failed':
      return { ...next, state: 'failed', reason: job.error?.message || 'The file cannot be read.', needsFile: needsFile(job) }
    case 'cancelled':
      return { ...next, state: 'cancelled', reason: '' }
  }
}

/** The reason why the console offers no retry for an unreadable file. */
export const WHY_NO_RETRY = 'A retry of an unreadable file would fail in the same way. Repair the file or use another version, then upload it again.'

/** Return whether a job failed because of its file, so that the user must upload another version. */
export function needsFile(job: Pick<Job, 'state' | 'given_up' | 'error'>): boolean {
  return job.state === 'failed' && !job.given_up && ['UNREADABLE_DOCUMENT', 'UNSUPPORTED_MEDIA', 'PAYLOAD_TOO_LARGE'].includes(job.error?.reason ?? '')
}

/** Return a file under the name of the document that it replaces. A file of another type keeps its name. */
export function inPlaceOf(name: string, file: File): File {
  const type = (of: string) => (of.includes('.') ? of.slice(of.lastIndexOf('.')).toLowerCase() : '')
  return type(name) === type(file.name) && !/^https?:/.test(name) ? new File([file], name, { type: file.type }) : file
}

/** Return a message about the parts of a document that could not be read. */
export function warningsOf(job: Pick<Job, 'warnings' | 'warning_count'>): string {
  const messages = job.warnings.slice(0, 3).map((each) => {
    const where = each.page ? `page ${each.page}: ` : each.part ? `${each.part}: ` : ''
    return `${where}${each.message}`
  })
  const rest = job.warning_count - messages.length
  return rest > 0 ? `${messages.join(' ')} And ${rest} more.` : messages.join(' ')
}

/** Return whether an upload has ended. */
export function isOver(upload: Upload): boolean {
  return !['sending', 'waiting', 'reading', 'storing'].includes(upload.state)
}

/** Return the progress of uploads in one line. */
export function summary(uploads: readonly Upload[]): string {
  const ended = uploads.filter(isOver)
  const failed = ended.filter((each) => each.state === 'failed').length
  const partly = ended.filter((each) => each.state === 'partly').length
  const parts = [`${ended.length - failed} of ${uploads.length} indexed`]
  if (partly) parts.push(`${partly} partly read`)
  if (failed) parts.push(`${failed} failed`)
  return parts.join(', ')
}

const ORDER = ['failed', 'partly', 'storing', 'reading', 'sending', 'waiting']

/** Sort uploads: first those that need attention, then those in progress, then the others. */
export function ordered(uploads: readonly Upload[]): Upload[] {
  const rank = (each: Upload) => (ORDER.includes(each.state) ? ORDER.indexOf(each.state) : ORDER.length)
  return uploads.toSorted((one, other) => rank(one) - rank(other))
}

/** Split files into groups that are small enough for one request. */
export function batches<T extends { size: number }>(files: readonly T[], mostFiles = 10, mostBytes = 48_000_000): T[][] {
  const groups: T[][] = []
  let bytes = 0
  for (const file of files) {
    const last = groups.at(-1)
    if (last && last.length < mostFiles && bytes + file.size <= mostBytes) {
      last.push(file)
      bytes += file.size
    } else {
      groups.push([file])
      bytes = file.size
    }
  }
  return groups
}

/** Return what is wrong with the name of an index. Return an empty text for a valid name. */
export function wrongIndexName(name: string): string {
  if (!name) return 'Enter a name for the index.'
  return /^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/.test(name) ? '' : 'Use letters, digits, dots, hyphens and underscores.'
}

/** Return the comma-separated names in a text, without duplicates. */
export function namesOf(text: string): string[] {
  const names = text.split(',').map((each) => each.trim())
  return [...new Set(names)].filter(Boolean)
}
