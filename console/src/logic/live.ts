/** The growing text of an answer. */

export interface Frames {
  request: (run: () => void) => number
  cancel: (frame: number) => void
}

const BROWSER_FRAMES: Frames = { request: (run) => requestAnimationFrame(run), cancel: (frame) => cancelAnimationFrame(frame) }

/** Notifies listeners of a growing text at most once per animation frame, because tokens can arrive faster. */
export class LiveText {
  #latest = ''
  #shown = ''
  #frame = 0
  #frames: Frames
  #listeners = new Set<() => void>()

  constructor(frames: Frames = BROWSER_FRAMES) {
    this.#frames = frames
  }

  update(text: string): void {
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
