/** The pages that a user may open, and the page and arguments in the URL fragment. */

import type { Role } from '../api/types.ts'

export type Page = 'ask' | 'documents' | 'jobs' | 'lab'

export interface PageEntry {
  page: Page
  title: string
  role: Role
}

export const PAGES: readonly PageEntry[] = [
  { page: 'ask', title: 'Ask', role: 'ask' },
  { page: 'documents', title: 'Documents', role: 'ask' },
  { page: 'lab', title: 'Search lab', role: 'ask' },
  { page: 'jobs', title: 'Jobs', role: 'ingest' },
]

/** Return whether a caller with these roles has a role. Administrators have all roles. */
export function may(roles: readonly Role[], role: Role): boolean {
  return roles.includes(role) || roles.includes('admin')
}

/** Return the pages that a caller may open. */
export function pagesFor(roles: readonly Role[]): PageEntry[] {
  return PAGES.filter((each) => may(roles, each.role))
}

export interface Place {
  page: string
  rest: string[]
}

/** Parse a URL fragment: `#/page/argument/…`. An empty fragment means the page `ask`. */
export function placeOf(hash: string): Place {
  const [page = '', ...rest] = hash
    .replace(/^#\/?/, '')
    .split('/')
    .map((part) => {
      try {
        return decodeURIComponent(part)
      } catch {
        return part
      }
    })
  return { page: page || 'ask', rest: rest.filter(Boolean) }
}

/** Return the URL fragment of a page and its arguments. */
export function hashOf(page: Page, ...rest: string[]): string {
  return `#/${[page, ...rest].map(encodeURIComponent).join('/')}`
}
