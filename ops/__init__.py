"""What a person runs beside `pulumi`."""
