import type { ComponentProps } from 'react';
import { showInvisible } from './text.tsx';

/** Lists the options of a record that has their texts by their values. */
export function listOptions<Option extends string>(texts: Readonly<Record<Option, string>>) {
  return Object.entries(texts) as [Option, string][];
}

/** A list of options, of which one is chosen. An option is a value with its text. */
export function Select<Option extends string>({
  options,
  onChange,
  ...select
}: Omit<ComponentProps<'select'>, 'className' | 'onChange'> & {
  readonly options: readonly (readonly [value: Option, text: string])[];
  readonly onChange?: (value: Option) => void;
}) {
  return (
    <select className="input" onChange={onChange && (({ target }) => onChange(target.value as Option))} {...select}>
      {options.map(([value, text]) => (
        <option key={value} value={value}>
          {showInvisible(text)}
        </option>
      ))}
    </select>
  );
}
