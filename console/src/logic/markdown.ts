/** Renders the Markdown of an answer. The text is untrusted, because a model may repeat text of documents. */

import { createContext, createElement, useContext, type ComponentProps, type ReactNode } from 'react'
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

/** Return a rehype plugin that replaces the placeholders of citations with elements. */
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

/** Return the address of a web or mail link. Return an empty text for any other address. */
export function safeAddress(address: string): string {
  // Browsers ignore these characters in an address.
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

/** Renders the citation with a number. A context does not change the component, so a citation keeps its focus. */
export const Citation = createContext<(number: number) => ReactNode>((number) => number)

const COMPONENTS: Components = {
  a: ({ href, children }: ComponentProps<'a'>) => {
    const safe = safeAddress(href ?? '')
    if (!safe) return createElement('span', null, children)
    return createElement('a', { href: safe, target: '_blank', rel: 'noopener noreferrer nofollow', title: safe }, children)
  },
  img: ({ alt }: ComponentProps<'img'>) => createElement('span', { className: 'picture' }, alt ? `[picture: ${alt}]` : '[picture]'),
  cite: (props: object) => useContext(Citation)(Number((props as { 'data-number'?: string })['data-number'])),
  table: ({ children }: ComponentProps<'table'>) =>
    createElement('div', { className: 'table-scroll', tabIndex: 0, role: 'region', 'aria-label': 'Table' }, createElement('table', null, children)),
}

/**
 * Return the elements of a Markdown text.
 *
 * HTML is shown as text. Only links to the web and to mail are links. A picture is shown as its description, because
 * an answer must not load anything.
 */
export function markdown(text: string, names: readonly string[]): ReactNode {
  return createElement(Markdown, {
    remarkPlugins: [remarkGfm],
    rehypePlugins: [citationElements(names)],
    allowedElements: ELEMENTS,
    unwrapDisallowed: true,
    urlTransform: safeAddress,
    components: COMPONENTS,
    children: text,
  })
}
