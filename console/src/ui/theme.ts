import { useEffect, useState } from 'react'

type Theme = 'light' | 'dark'
const KEPT = 'causeway.theme'

function chosen(): Theme {
  const kept = localStorage.getItem(KEPT)
  if (kept === 'light' || kept === 'dark') return kept
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'
}

/** Return the theme and a function that switches it. The default is the browser's theme. */
export function useTheme(): [Theme, () => void] {
  const [theme, setTheme] = useState<Theme>(chosen)
  useEffect(() => {
    document.documentElement.dataset.theme = theme
  }, [theme])
  return [
    theme,
    () => {
      const next = theme === 'dark' ? 'light' : 'dark'
      localStorage.setItem(KEPT, next)
      setTheme(next)
    },
  ]
}
