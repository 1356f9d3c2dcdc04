/** The text of an answer while it arrives. */

export interface Frames {
  request: (run: () => void) => number
  cancel: (frame: number) => void
}

const OF_THE_BROWSER: Frames = { request: (run) => requestAnimationFrame(run), cancel: (frame) => cancelAnimationFrame(frame) }

/** Tells its listeners about a growing text at most once per animation frame: tokens can arrive faster than frames. */
export class LiveText {
  #latest = ''
  #shown = ''
  #frame = 0
  #frames: Frames
  #listeners = new Set<() => void>()

  constructor(frames: Frames = OF_THE_BROWSER) {
    this.#frames = frames
  }

  put(text: string): void {
    if (text === this.#latest) return
    this.#latest = text
    this.#frame ||= this.#frames.request(this.#show)
  }

  /** Cancel the pending frame. The page shows the complete answer instead. */
  end(): void {
    this.#frames.cancel(this.#frame)
    this.#listeners.clear()
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  readonly shown = (): string => this.#shown

  readonly #show = (): void => {
    this.#frame = 0
    this.#shown = this.#latest
    for (const listener of this.#listeners) listener()
  }
}
