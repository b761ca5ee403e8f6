"""The form in which a person writes a new policy revision."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django import forms
from django.utils.text import capfirst

from policy_app.models import PolicyRevision
from policy_app.reading import SIZES
from policy_app.services.publish import problems
from policy_app.states import PermissionPolicy
from policy_app.values import NAMES, PolicyValues
from sandbox_supervisor.protocol.units import (
    DURATION_HINT,
    SIZE_HINT,
    read_duration,
    read_size,
    show_duration,
    show_size,
)


class DurationTextField(forms.CharField):
    def prepare_value(self, value: Any) -> Any:
        return show_duration(value) if isinstance(value, timedelta) else value

    def clean(self, value: Any) -> Any:
        try:
            return read_duration(super().clean(value).strip())
        except ValueError as error:
            raise forms.ValidationError(f"{error}: {DURATION_HINT}") from error


class SizeTextField(forms.CharField):
    def prepare_value(self, value: Any) -> Any:
        return show_size(value) if isinstance(value, int) else value

    def clean(self, value: Any) -> Any:
        try:
            return read_size(super().clean(value).strip())
        except ValueError as error:
            raise forms.ValidationError(f"{error}: {SIZE_HINT}") from error


class LinesField(forms.CharField):
    widget = forms.Textarea(attrs={"rows": 3})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list | tuple) else value

    def clean(self, value: Any) -> Any:
        return tuple(line.strip() for line in super().clean(value).splitlines() if line.strip())


def _field(column: Any, **options: Any) -> forms.Field | None:
    name = column.name
    if name in SIZES:
        return SizeTextField(label=capfirst(column.verbose_name), help_text="Such as 512Mi or 4Gi.")
    if isinstance(getattr(PolicyValues(), name, None), timedelta):
        return DurationTextField(
            label=capfirst(column.verbose_name), help_text=f"{column.help_text} Such as 10m or 3d."
        )
    if name == "egress_allow":
        return LinesField(label=capfirst(column.verbose_name), required=False, help_text="One host name in each line.")
    made: forms.Field | None = column.formfield(**options)
    return made


if TYPE_CHECKING:
    RevisionForm = forms.ModelForm[PolicyRevision]
else:
    RevisionForm = forms.ModelForm  # generic for the type checker only


class PolicyForm(RevisionForm):
    """All columns of a revision, the message, and the revision that the person looked at."""

    based_on = forms.IntegerField(widget=forms.HiddenInput)

    class Meta:
        model = PolicyRevision
        fields = (*NAMES, "message")
        formfield_callback = _field

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if not self.errors:
            for name, text in problems(self.values).items():
                self.add_error(name, f"It {text}.")
        return cleaned

    @property
    def values(self) -> PolicyValues:
        """The cleaned columns as values."""
        columns = {name: self.cleaned_data[name] for name in NAMES}
        columns["permission_policy"] = PermissionPolicy(columns["permission_policy"])
        return PolicyValues(**columns)

    def _post_clean(self) -> None:
        """Leave the model's own validation out: the row is made by the service, never by the form."""
