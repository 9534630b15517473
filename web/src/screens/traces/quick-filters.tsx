import { Icon } from '../../components/icon.tsx';
import { Popover } from '../../components/popover.tsx';
import { Value } from '../../components/text.tsx';
import type { Facet } from './use-runs.ts';

const fixed = [
  { label: 'Errors', query: 'eq(status, "error")' },
  { label: 'Slow (over 5 s)', query: 'gt(latency, 5)' },
  { label: 'Not ended', query: 'eq(status, "pending")' },
];
/** Facets that have a menu, with its label. Metadata has one menu for all of its keys. */
const menus = [
  { label: 'Name', includes: (key: string) => key === 'name' },
  { label: 'Tag', includes: (key: string) => key === 'tag' || key === 'tags' },
  { label: 'Metadata', includes: (key: string) => key.startsWith('metadata') },
];

/** Filters of one click: fixed ones, and the most frequent names, tags and metadata values. */
export function QuickFilters({
  active,
  facets,
  onChange,
}: {
  readonly active: readonly string[];
  readonly facets: readonly Facet[];
  readonly onChange: (active: readonly string[] | undefined) => void;
}) {
  const toggle = (query: string) => {
    const next = active.includes(query) ? active.filter((each) => each !== query) : [...active, query];
    onChange(next.length === 0 ? undefined : next);
  };
  const others = active.filter((query) => !fixed.some((each) => each.query === query));
  return (
    <div className="row wrap">
      {fixed.map(({ label, query }) => (
        <button
          key={query}
          type="button"
          className="chip"
          aria-pressed={active.includes(query)}
          onClick={() => toggle(query)}
        >
          {label}
        </button>
      ))}
      {menus.map(({ label, includes }) => {
        const options = facets.filter(({ key }) => includes(key));
        if (options.length === 0) return null;
        return (
          <Popover key={label} label={`${label} ▾`} className="chip">
            {(close) =>
              options.map(({ key, value, query, n }) => (
                <button
                  key={query}
                  type="button"
                  className="option"
                  onClick={() => {
                    toggle(query);
                    close();
                  }}
                >
                  {label === 'Metadata' && <span className="muted">{key.replace(/^metadata\.?/, '')}</span>}
                  <Value text={value} />
                  <span className="spacer" />
                  <span className="muted">{n}</span>
                </button>
              ))
            }
          </Popover>
        );
      })}
      {others.map((query) => (
        <button
          key={query}
          type="button"
          className="chip mono"
          aria-pressed="true"
          title="Remove"
          onClick={() => toggle(query)}
        >
          <Value text={query} />
          <Icon name="close" />
        </button>
      ))}
    </div>
  );
}
