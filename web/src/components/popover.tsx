import { type ReactNode, useEffect, useRef, useState } from 'react';

/** A button that opens a panel below it. The panel closes with Escape, by a click elsewhere, and by `close`. */
export function Popover({
  label,
  name,
  className = 'button',
  end = false,
  children,
}: {
  readonly label: ReactNode;
  /** Accessible name, if the label is not text. */
  readonly name?: string;
  readonly className?: string;
  /** Aligns the panel with the end of the button. */
  readonly end?: boolean;
  readonly children: (close: () => void) => ReactNode;
}) {
  const [isOpen, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!isOpen) return;
    const onPointer = (event: PointerEvent) => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    const onKey = (event: KeyboardEvent) => {
      if (event.key !== 'Escape') return;
      setOpen(false);
      button.current?.focus();
    };
    document.addEventListener('pointerdown', onPointer);
    document.addEventListener('keydown', onKey);
    return () => {
      document.removeEventListener('pointerdown', onPointer);
      document.removeEventListener('keydown', onKey);
    };
  }, [isOpen]);
  return (
    <div className="popover" ref={root}>
      <button
        type="button"
        ref={button}
        className={className}
        aria-expanded={isOpen}
        aria-label={name}
        onClick={() => setOpen(!isOpen)}
      >
        {label}
      </button>
      {isOpen && (
        <div ref={keepInWindow} className={end ? 'popover-panel end' : 'popover-panel'}>
          {children(() => setOpen(false))}
        </div>
      )}
    </div>
  );
}

const edge = 12;

/** Moves a panel that exceeds the window to the left or right, also when its content changes its width. */
function keepInWindow(panel: HTMLElement | null) {
  if (!panel) return;
  const observer = new ResizeObserver(() => {
    panel.style.translate = 'none';
    const { left, right } = panel.getBoundingClientRect();
    const excess = Math.max(0, right - (document.documentElement.clientWidth - edge));
    panel.style.translate = `${Math.max(edge - left, 0) - excess}px`;
  });
  observer.observe(panel);
  return () => observer.disconnect();
}
