/** The answer of a model as Markdown. Models repeat what documents say: their text is hostile. */

import { createElement, type ComponentProps, type ReactNode } from 'react'
import Markdown, { type Components } from 'react-markdown'
import remarkGfm from 'remark-gfm'
import { parts, restored } from './citations.ts'

interface Node {
  type: string
  value?: string
  tagName?: string
  properties?: Record<string, unknown>
  children?: Node[]
}

const CITATION = 'cite'

/** A plugin of rehype: puts an element in place of each mark of a citation. */
export function citationElements(names: readonly string[]) {
  return () => (tree: Node) => {
    replaceIn(tree, names, false)
  }
}

function replaceIn(node: Node, names: readonly string[], inCode: boolean): void {
  if (!node.children) return
  const code = inCode || node.tagName === 'code' || node.tagName === 'pre'
  node.children = node.children.flatMap((child) => {
    if (child.type !== 'text' || child.value === undefined) {
      replaceIn(child, names, code)
      return [child]
    }
    if (code) return [{ ...child, value: restored(child.value, names) }]
    return parts(child.value).map((part): Node =>
      typeof part === 'string'
        ? { type: 'text', value: part }
        : { type: 'element', tagName: CITATION, properties: { dataNumber: String(part) }, children: [] },
    )
  })
}

/** Return an address that a link may have, or an empty text: the web and mail, and nothing of this page. */
export function safeAddress(address: string): string {
  // What browsers ignore within an address.
  const clean = address.replace(/[\u0000-\u0020\u007f]/g, '')
  if (!/^(https?:\/\/|mailto:)/i.test(clean)) return ''
  try {
    const parsed = new URL(clean)
    return ['http:', 'https:', 'mailto:'].includes(parsed.protocol) ? parsed.href : ''
  } catch {
    return ''
  }
}

const ELEMENTS = [
  ...['p', 'br', 'hr', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'blockquote', 'ul', 'ol', 'li', 'pre', 'code', 'em', 'strong'],
  ...['del', 'a', 'table', 'thead', 'tbody', 'tr', 'th', 'td', 'img', CITATION],
]

/**
 * Return a text as elements. HTML in it is shown as text; a link leads to the web or to mail, or is text; a picture is
 * its description, because nothing is loaded from elsewhere.
 */
export function markdown(text: string, names: readonly string[], citation: (number: number) => ReactNode): ReactNode {
  const components: Components = {
    a: ({ href, children }: ComponentProps<'a'>) => {
      const safe = safeAddress(href ?? '')
      if (!safe) return createElement('span', null, children)
      return createElement('a', { href: safe, target: '_blank', rel: 'noopener noreferrer nofollow', title: safe }, children)
    },
    img: ({ alt }: ComponentProps<'img'>) => createElement('span', { className: 'picture' }, alt ? `[picture: ${alt}]` : '[picture]'),
    cite: (props: object) => citation(Number((props as { 'data-number'?: string })['data-number'])),
    table: ({ children }: ComponentProps<'table'>) =>
      createElement('div', { className: 'table-scroll', tabIndex: 0, role: 'region', 'aria-label': 'Table' }, createElement('table', null, children)),
  }
  return createElement(Markdown, {
    remarkPlugins: [remarkGfm],
    rehypePlugins: [citationElements(names)],
    allowedElements: ELEMENTS,
    unwrapDisallowed: true,
    urlTransform: safeAddress,
    components,
    children: text,
  })
}

/**
 * Split a text that grows into what is settled and the rest: at the last blank line that is not in a block of code.
 *
 * What is settled is shown once, and only the rest with each piece that comes.
 */
export function split(text: string): [string, string] {
  let place = 0
  let code = false
  let settledTo = 0
  for (const line of text.split('\n')) {
    const next = place + line.length + 1
    if (/^ {0,3}(```|~~~)/.test(line)) code = !code
    else if (!code && line.trim() === '' && next <= text.length) settledTo = next
    place = next
  }
  return [text.slice(0, settledTo), text.slice(settledTo)]
}
