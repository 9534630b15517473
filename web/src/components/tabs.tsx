import { type KeyboardEvent, type ReactNode, useEffect, useId, useRef } from 'react';

/** Tabs as in the ARIA authoring practices: arrow keys change the tab. */
export function Tabs<T extends string>({
  label,
  tabs,
  selected,
  onSelect,
  children,
}: {
  readonly label: string;
  readonly tabs: readonly T[];
  readonly selected: T;
  readonly onSelect: (tab: T) => void;
  readonly children: ReactNode;
}) {
  const id = useId();
  // A label can contain spaces, which an id cannot.
  const buildTabId = (tab: T) => `${id}-${tabs.indexOf(tab)}`;
  const list = useRef<HTMLDivElement>(null);
  // On a narrow screen the tabs scroll.
  useEffect(
    () => list.current?.children[tabs.indexOf(selected)]?.scrollIntoView({ block: 'nearest', inline: 'nearest' }),
    [tabs, selected],
  );
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    event.stopPropagation();
    const next = (tabs.indexOf(selected) + step + tabs.length) % tabs.length;
    onSelect(tabs[next] as T);
    (list.current?.children[next] as HTMLElement | undefined)?.focus();
  };
  return (
    <>
      <div className="tabs" role="tablist" aria-label={label} ref={list} onKeyDown={onKeyDown}>
        {tabs.map((tab) => (
          <button
            key={tab}
            type="button"
            role="tab"
            id={buildTabId(tab)}
            aria-selected={tab === selected}
            aria-controls={`${id}-panel`}
            tabIndex={tab === selected ? 0 : -1}
            onClick={() => onSelect(tab)}
          >
            {tab}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${id}-panel`} aria-labelledby={buildTabId(selected)}>
        {children}
      </div>
    </>
  );
}
