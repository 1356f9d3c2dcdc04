/** Reads lines and server-sent events from streams of bytes. */

/** Yield the lines of a stream. A piece may end inside a character. The last line may lack its line end. */
export async function* linesOf(stream: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  let rest = ''
  for await (const bytes of stream) {
    const pieces = (rest + decoder.decode(bytes, { stream: true })).split('\n')
    rest = pieces.pop() ?? ''
    for (const line of pieces) if (line.trim()) yield line
  }
  rest += decoder.decode()
  if (rest.trim()) yield rest
}

/** Yield the names and the data of server-sent events. */
export async function* eventsOf(stream: AsyncIterable<Uint8Array>): AsyncGenerator<{ event: string; data: string }> {
  const decoder = new TextDecoder()
  let rest = ''
  for await (const bytes of stream) {
    const blocks = (rest + decoder.decode(bytes, { stream: true })).replaceAll('\r\n', '\n').split('\n\n')
    rest = blocks.pop() ?? ''
    for (const block of blocks) {
      let event = 'message'
      const data: string[] = []
      for (const line of block.split('\n')) {
        if (line.startsWith('event:')) event = line.slice(6).trim()
        else if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''))
      }
      if (data.length) yield { event, data: data.join('\n') }
    }
  }
}
