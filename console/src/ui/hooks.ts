import { useEffect, useState, useSyncExternalStore } from 'react'
import { placeOf, type Place } from '../logic/session.ts'

let shown = placeOf(location.hash)

function follow(changed: () => void): () => void {
  const listen = () => {
    shown = placeOf(location.hash)
    changed()
  }
  addEventListener('hashchange', listen)
  return () => removeEventListener('hashchange', listen)
}

/** Return the page and arguments in the URL fragment. Render again when the fragment changes. */
export function usePlace(): Place {
  return useSyncExternalStore(follow, () => shown)
}

/** Return a value with a delay, after it has not changed for some time (debounce). */
export function useSettled<T>(value: T, milliseconds: number): T {
  const [settled, setSettled] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), milliseconds)
    return () => clearTimeout(timer)
  }, [value, milliseconds])
  return settled
}

/** Store a value in this tab's session. */
export function useStored<T>(name: string, initial: T): [T, (value: T) => void] {
  const [value, setValue] = useState<T>(() => {
    try {
      const stored = sessionStorage.getItem(name)
      return stored === null ? initial : (JSON.parse(stored) as T)
    } catch {
      return initial
    }
  })
  return [
    value,
    (next) => {
      setValue(next)
      sessionStorage.setItem(name, JSON.stringify(next))
    },
  ]
}
