import { getDocument, GlobalWorkerOptions, type PageViewport, type PDFDocumentProxy } from 'pdfjs-dist'
import worker from 'pdfjs-dist/build/pdf.worker.min.mjs?url'
import { useEffect, useRef, useState } from 'react'
import { spansOf } from '../../logic/highlight.ts'
import { Button, Failure, Loading } from '../../ui/parts.tsx'

GlobalWorkerOptions.workerSrc = worker

interface Props {
  data: ArrayBuffer
  page: number
  passages: string[]
}

interface Item {
  str: string
  width: number
  height: number
  transform: number[]
}

/** A picture of a PDF page with highlighted passages. */
export default function PdfPage({ data, page, passages }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null)
  const [document, setDocument] = useState<PDFDocumentProxy | null>(null)
  const [shown, setShown] = useState(page)
  const [failed, setFailed] = useState<unknown>(null)
  useEffect(() => setShown(page), [page])

  useEffect(() => {
    // Copy the data, because the worker takes ownership. The content security policy forbids `eval` and
    // WebAssembly, so PDF.js must not use them. XFA forms are not shown.
    const task = getDocument({ data: data.slice(0), isEvalSupported: false, useWasm: false, enableXfa: false })
    task.promise.then(setDocument, setFailed)
    return () => void task.destroy()
  }, [data])

  const key = passages.join('\n\n')
  useEffect(() => {
    const target = canvas.current
    if (!document || !target) return
    let stopped = false
    let cancel = () => undefined as void
    const draw = async () => {
      const sheet = await document.getPage(Math.min(Math.max(1, shown), document.numPages))
      const content = await sheet.getTextContent()
      if (stopped) return
      const width = target.parentElement?.clientWidth ?? 500
      const scale = (width / sheet.getViewport({ scale: 1 }).width) * Math.min(2, devicePixelRatio)
      const viewport = sheet.getViewport({ scale })
      delete target.dataset.drawn
      target.width = viewport.width
      target.height = viewport.height
      const context = target.getContext('2d')
      if (!context) return
      const task = sheet.render({ canvas: target, viewport })
      cancel = () => task.cancel()
      await task.promise
      if (shown === page) mark(context, content.items, viewport, scale)
      target.dataset.drawn = String(shown)
    }
    const mark = (context: CanvasRenderingContext2D, listed: object[], viewport: PageViewport, scale: number) => {
      const items = listed.filter((each): each is Item => 'str' in each)
      context.globalCompositeOperation = 'multiply'
      context.fillStyle = '#ffe58a'
      for (const item of marked(items, key.split('\n\n'))) {
        const [x = 0, y = 0] = viewport.convertToViewportPoint(item.transform[4] ?? 0, item.transform[5] ?? 0)
        const height = item.height * scale
        context.fillRect(x - 1, y - height, item.width * scale + 2, height * 1.25)
      }
    }
    draw().catch((error: unknown) => !stopped && setFailed(error))
    return () => {
      stopped = true
      cancel()
    }
  }, [document, shown, page, key])

  if (failed !== null) return <Failure error={new Error('The page cannot be shown. The answer is based on the passages below.')} />
  return (
    <figure className="pdf">
      {!document && <Loading what="the page" />}
      <canvas ref={canvas} role="img" aria-label={shown === page ? `Page ${shown}, with the passages marked` : `Page ${shown}`} />
      {document && (
        <figcaption>
          <Button kind="quiet" disabled={shown <= 1} onClick={() => setShown(shown - 1)}>
            Previous
          </Button>
          <span className="muted">
            Page {shown} of {document.numPages}
          </span>
          <Button kind="quiet" disabled={shown >= document.numPages} onClick={() => setShown(shown + 1)}>
            Next
          </Button>
        </figcaption>
      )}
    </figure>
  )
}

/** Return the text items of a page that are part of a passage. */
function marked(items: Item[], passages: string[]): Item[] {
  const starts: number[] = []
  let text = ''
  for (const item of items) {
    starts.push(text.length)
    text += `${item.str} `
  }
  const spans = spansOf(text, passages)
  return items.filter((item, place) => {
    const start = starts[place] ?? 0
    return item.str.trim() !== '' && spans.some((span) => start < span.end && start + item.str.length > span.start)
  })
}
