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

/** Return the place in the page's address, and follow its changes. */
export function usePlace(): Place {
  return useSyncExternalStore(follow, () => shown)
}

/** Return a value after it has not changed for some time. */
export function useSettled<T>(value: T, milliseconds: number): T {
  const [settled, setSettled] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), milliseconds)
    return () => clearTimeout(timer)
  }, [value, milliseconds])
  return settled
}

/** Keep a value for this tab's session. */
export function useKept<T>(name: string, usual: T): [T, (value: T) => void] {
  const [value, setValue] = useState<T>(() => {
    try {
      const kept = sessionStorage.getItem(name)
      return kept === null ? usual : (JSON.parse(kept) as T)
    } catch {
      return usual
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
