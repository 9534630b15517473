import { useState } from 'react';
import { Button } from './components/button.tsx';
import { Icon } from './components/icon.tsx';

const themes = ['system', 'light', 'dark'] as const;
type Theme = (typeof themes)[number];
const storageKey = 'runlake.theme';

function readTheme(): Theme {
  const stored = localStorage.getItem(storageKey);
  return themes.find((theme) => theme === stored) ?? 'system';
}

/** Applies the stored theme. `system` follows the setting of the device. */
export function applyTheme(theme: Theme = readTheme()): void {
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

/** A button that changes to the next theme. */
export function ThemeButton() {
  const [theme, setTheme] = useState(readTheme);
  const next = themes[(themes.indexOf(theme) + 1) % themes.length] as Theme;
  const change = () => {
    localStorage.setItem(storageKey, next);
    applyTheme(next);
    setTheme(next);
  };
  return (
    <Button kind="quiet icon" title={`Theme: ${theme}`} aria-label={`Theme: ${theme}`} onClick={change}>
      <Icon name={theme === 'dark' ? 'moon' : theme === 'light' ? 'sun' : 'screen'} />
    </Button>
  );
}
