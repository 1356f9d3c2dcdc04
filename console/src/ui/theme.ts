import { useEffect, useState } from 'react'

type Theme = 'light' | 'dark'
const THEME = 'causeway.theme'

function chosen(): Theme {
  const stored = localStorage.getItem(THEME)
  if (stored === 'light' || stored === 'dark') return stored
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'
}

/** Return the theme and a function that toggles it. The default is the browser's theme. */
export function useTheme(): [Theme, () => void] {
  const [theme, setTheme] = useState<Theme>(chosen)
  useEffect(() => {
    document.documentElement.dataset.theme = theme
  }, [theme])
  return [
    theme,
    () => {
      const next = theme === 'dark' ? 'light' : 'dark'
      localStorage.setItem(THEME, next)
      setTheme(next)
    },
  ]
}
