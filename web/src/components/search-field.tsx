import type { ComponentProps } from 'react';
import { useAddressValue } from './use-address-value.ts';

/** An input for a search. The key `/` goes to it, unless it searches only a part of the screen. */
export function SearchField({
  label,
  hasShortcut = true,
  value,
  onChange,
  ...input
}: Omit<ComponentProps<'input'>, 'value' | 'onChange'> & {
  readonly label: string;
  readonly value?: string | undefined;
  readonly hasShortcut?: boolean;
  /** Unset: the form reads the text when it is submitted. */
  readonly onChange?: (text: string) => void;
}) {
  const text = useAddressValue(value);
  return (
    <input
      className="input"
      type="search"
      placeholder={label}
      aria-label={label}
      {...text}
      data-shortcut={hasShortcut ? '/' : undefined}
      onChange={onChange && (({ target }) => onChange(target.value))}
      {...input}
    />
  );
}
