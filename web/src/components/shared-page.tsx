import type { ReactNode } from 'react';
import { Brand } from '../shell.tsx';
import { ThemeButton } from '../theme.tsx';
import './shared-page.css';

/** Frame of a page that a public link opens without a session. `label` names the shared object. */
export function SharedPage({ label, children }: { readonly label: string; readonly children: ReactNode }) {
  return (
    <div className="shared">
      <header className="row shared-head">
        <span className="brand">
          <Brand />
        </span>
        <span className="muted">{label}</span>
        <span className="spacer" />
        <ThemeButton />
      </header>
      <main className="main">{children}</main>
    </div>
  );
}
