import { type FormEvent, useId } from 'react';
import { Button } from '../../components/button.tsx';
import { formatTime, maxLocalTime } from '../../components/format.ts';
import { Icon } from '../../components/icon.tsx';
import { Popover } from '../../components/popover.tsx';
import { defaultRange, type RangeName, ranges, type TracesSearch } from './search.ts';

type Range = Pick<TracesSearch, 'range' | 'from' | 'until'>;

/** Menu of time ranges: presets, or two times in the zone of the viewer. */
export function RangeMenu({ search, onChange }: { readonly search: Range; readonly onChange: (range: Range) => void }) {
  const id = useId();
  const { from, until } = search;
  const isOwn = from !== undefined || until !== undefined;
  const label = isOwn ? `${describe(from)} – ${describe(until)}` : ranges[search.range ?? defaultRange].label;
  const submit = (event: FormEvent<HTMLFormElement>, close: () => void) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget);
    onChange({ range: undefined, from: toIso(data.get('from')), until: toIso(data.get('until')) });
    close();
  };
  return (
    <Popover
      end
      label={
        <>
          <Icon name="clock" />
          {label}
        </>
      }
    >
      {(close) => (
        <>
          {Object.entries(ranges).map(([name, range]) => (
            <button
              key={name}
              type="button"
              className="option"
              aria-current={!isOwn && name === (search.range ?? defaultRange)}
              onClick={() => {
                onChange({ range: name as RangeName, from: undefined, until: undefined });
                close();
              }}
            >
              {range.label}
            </button>
          ))}
          <form className="own-range stack" onSubmit={(event) => submit(event, close)}>
            <label className="field" htmlFor={`${id}-from`}>
              From
              <input
                id={`${id}-from`}
                name="from"
                type="datetime-local"
                max={maxLocalTime}
                className="input"
                defaultValue={toLocal(from)}
              />
            </label>
            <label className="field" htmlFor={`${id}-until`}>
              Until
              <input
                id={`${id}-until`}
                name="until"
                type="datetime-local"
                max={maxLocalTime}
                className="input"
                defaultValue={toLocal(until)}
              />
            </label>
            <Button type="submit">Apply</Button>
          </form>
        </>
      )}
    </Popover>
  );
}

function describe(time: string | undefined): string {
  return time === undefined ? '…' : formatTime(new Date(time), new Date());
}

function toIso(value: FormDataEntryValue | null): string | undefined {
  return typeof value === 'string' && value !== '' ? new Date(value).toISOString() : undefined;
}

/** Returns a time as the value of an input of the type `datetime-local`. */
function toLocal(time: string | undefined): string | undefined {
  if (time === undefined) return undefined;
  const date = new Date(time);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
